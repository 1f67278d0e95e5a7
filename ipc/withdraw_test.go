package ipc_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestWithdrawAndBeginAgree begins batches while they are withdrawn. If both sides use their
// barriers, a batch that was certainly withdrawn is never begun.
func TestWithdrawAndBeginAgree(t *testing.T) {
	c, p := newChannel(t, ipc.Config{})
	const batches = 50_000
	withdrawn, begun := p.DownWord(shm.AheadOffset), p.UpWord(shm.AheadOffset)
	certain, skipped := make([]bool, batches+1), make([]bool, batches+1)
	var turn, over atomic.Uint64 // the current batch, and the one the peer has finished
	var wg sync.WaitGroup
	wg.Go(func() {
		random := rand.New(rand.NewPCG(5, 6))
		for n := uint64(1); n <= batches; n++ {
			for turn.Load() != n {
				runtime.Gosched()
			}
			dawdle(random)
			begun.Swap(n) // a full barrier; see package ipc
			skipped[n] = withdrawn.Load() == n
			over.Store(n)
		}
	})
	random := rand.New(rand.NewPCG(3, 4))
	for n := uint64(1); n <= batches; n++ {
		turn.Store(n)
		dawdle(random)
		certain[n] = c.Withdraw(n)
		for over.Load() != n {
			runtime.Gosched()
		}
	}
	wg.Wait()
	ways := [2][2]int{}
	for n := 1; n <= batches; n++ {
		if certain[n] && !skipped[n] {
			t.Fatalf("batch %d is certain to be skipped, and was begun", n)
		}
		ways[number(certain[n])][number(skipped[n])]++
	}
	t.Logf("begun %d, skipped without certainty %d, skipped for certain %d", ways[0][0], ways[0][1], ways[1][1])
}

// dawdle passes a little time, less than a system call takes.
func dawdle(random *rand.Rand) {
	for range random.IntN(100) {
		_ = random.Uint64()
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestWithdrawFromAClosedChannel checks that Withdraw reports true for a batch that was not begun,
// and false once the channel is closed.
func TestWithdrawFromAClosedChannel(t *testing.T) {
	c, _ := newChannel(t, ipc.Config{})
	if !c.Withdraw(1) {
		t.Error("a batch that was not begun is not withdrawn")
	}
	c.Close()
	if c.Withdraw(2) {
		t.Error("a batch of a life that has ended is withdrawn")
	}
}

// TestWaitingFramesKnowTheirPositions checks that Commit returns the final position also for frames
// that wait for room. No frame counts as taken before the stub has taken it.
func TestWaitingFramesKnowTheirPositions(t *testing.T) {
	c, p := newChannel(t, ipc.Config{})
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		var positions []uint64
		for i := range 60 {
			body := make([]byte, random.IntN(8000))
			if i%10 == 0 {
				body = make([]byte, ipc.MaxFrame-ipc.HeaderSize-random.IntN(100))
			}
			frame, err := c.Begin(ipc.Execute, uint64(i), len(body))
			if err != nil {
				t.Fatal(err)
			}
			copy(frame[ipc.HeaderSize:], body)
			position, _ := c.Commit()
			positions = append(positions, position)
		}
		waiting := c.Backlog()
		if waiting == 0 {
			t.Fatal("no frame waits for room: the test is too small")
		}
		for i, position := range positions {
			if c.Taken(position) {
				t.Fatalf("round %d: frame %d of %d, with %d bytes waiting, is taken before the stub has looked", round, i, len(positions), waiting)
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
