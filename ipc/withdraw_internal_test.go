package ipc

import (
	"math/rand/v2"
	"testing"
)

// TestWaitingFramesKnowTheirPositions checks that Commit returns the final position also for frames
// that wait for room. No frame counts as taken before the stub has taken it.
func TestWaitingFramesKnowTheirPositions(t *testing.T) {
	c, p := NewChannel(t, Config{})
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		var positions []uint64
		for i := range 60 {
			body := make([]byte, random.IntN(8000))
			if i%10 == 0 {
				body = make([]byte, MaxFrame-HeaderSize-random.IntN(100))
			}
			frame, err := c.Begin(Execute, uint64(i), len(body))
			if err != nil {
				t.Fatal(err)
			}
			copy(frame[HeaderSize:], body)
			position, _ := c.Commit()
			positions = append(positions, position)
		}
		c.send.Lock()
		waiting := len(c.send.pending)
		c.send.Unlock()
		if waiting == 0 {
			t.Fatal("no frame waits for room: the test is too small")
		}
		for i, position := range positions {
			if c.Taken(position) {
				t.Fatalf("round %d: frame %d of %d, %d of them waiting, is taken before the stub has looked", round, i, len(positions), waiting)
			}
			f, err := p.Receive()
			if err != nil || f.ID != uint64(i) {
				t.Fatalf("frame: got %d, error %v, want %d", f.ID, err, i)
			}
			if !c.Taken(position) || p.head != position {
				t.Fatalf("round %d: frame %d has position %d, the stub's head is %d", round, i, position, p.head)
			}
		}
	}
}
