package ipc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/shm"
)

// TestSpinTellsWhenAFrameWasSeen checks that only the first frame found by Spin has a Seen time.
// Later frames waited for the first one's handler. Receive sets no time.
func TestSpinTellsWhenAFrameWasSeen(t *testing.T) {
	c, p := NewChannel(t, Config{})
	var frames []Frame
	done := make(chan struct{}, 3) // one value per frame
	handle := func(f Frame) error {
		frames = append(frames, f)
		done <- struct{}{}
		return nil
	}
	p.Send(Released, 1, nil)
	p.Send(Released, 2, nil)
	before := now()
	if _, err := c.Spin(time.Minute, done, handle, nil); err != nil {
		t.Fatal(err)
	}
	after := now()
	if len(frames) != 2 || frames[0].Seen < before || frames[0].Seen > after || frames[1].Seen != 0 {
		t.Errorf("Spin: got frames %+v, want two, of which the first was seen between %d and %d", frames, before, after)
	}
	p.Send(Released, 3, nil)
	if n, err := c.Receive(handle); n != 1 || err != nil || frames[2].Seen != 0 {
		t.Errorf("Receive: got %d frames, the last %+v (error %v), want one that no look has seen", n, frames[len(frames)-1], err)
	}
}

// TestBrokenRingsEndTheLife checks that each write that is forbidden to a stub ends in a
// ProtocolError with the right rule.
func TestBrokenRingsEndTheLife(t *testing.T) {
	frame := func(p *peer, size int, kind Kind, flags uint16, life uint32) {
		putHeader(p.Up[shm.RingOffset:], size, kind, flags, life, 0)
	}
	tail := func(p *peer, n uint64) { p.UpWord(shm.TailOffset).Store(n) }
	for _, c := range []struct {
		name string
		rule string
		do   func(p *peer)
	}{
		{"tail runs past the ring", "tail", func(p *peer) { tail(p, shm.RingSize+8) }},
		{"tail moves back", "tail", func(p *peer) { tail(p, ^uint64(7)) }},
		{"tail splits a frame", "tail", func(p *peer) { tail(p, 4) }},
		{"size below a header", "frame", func(p *peer) { frame(p, 8, Hello, 0, p.life); tail(p, 64) }},
		{"size beyond the tail", "frame", func(p *peer) { frame(p, 200, Hello, 0, p.life); tail(p, 64) }},
		{"size beyond a frame", "frame", func(p *peer) { frame(p, MaxFrame+8, Hello, 0, p.life); tail(p, shm.RingSize) }},
		{"header cut off", "frame", func(p *peer) { frame(p, 24, Hello, 0, p.life); tail(p, 8) }},
		{"pad that does not end with the ring", "frame", func(p *peer) { frame(p, 64, Pad, 0, p.life); tail(p, 64) }},
		{"another life", "life", func(p *peer) { frame(p, 24, Hello, 0, p.life+1); tail(p, 24) }},
		{"unknown flags", "frame", func(p *peer) { frame(p, 24, Hello, 6, p.life); tail(p, 24) }},
		{"spilled without a descriptor", "frame", func(p *peer) { frame(p, 24, Hello, FlagSpilled, p.life); tail(p, 24) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch, p := NewChannel(t, Config{})
			c.do(p)
			_, err := ch.Receive(func(Frame) error { return nil })
			var broke *ProtocolError
			if !errors.As(err, &broke) || broke.Rule != c.rule {
				t.Fatalf("Receive: got %v, want a ProtocolError of rule %q", err, c.rule)
			}
		})
	}
}

// FuzzRing calls Receive on a ring with arbitrary content and an arbitrary tail.
func FuzzRing(f *testing.F) {
	var header [HeaderSize]byte
	putHeader(header[:], 32, Hello, 0, 3, 1)
	f.Add(append(header[:], make([]byte, 8)...), uint64(32))
	putHeader(header[:], HeaderSize+DescriptorSize, Executed, FlagSpilled, 3, 1)
	f.Add(append(header[:], make([]byte, DescriptorSize)...), uint64(64))
	f.Fuzz(func(t *testing.T, content []byte, tail uint64) {
		c, p := NewChannel(t, Config{})
		copy(p.Up[shm.RingOffset:shm.ArenaOffset], content)
		p.UpWord(shm.TailOffset).Store(tail)
		_, err := c.Receive(func(f Frame) error {
			if len(f.Body) > MaxFrame && f.Kind != Executed {
				t.Fatalf("frame of %d bytes", len(f.Body))
			}
			return nil
		})
		if err == nil && c.recv.position != tail {
			t.Fatalf("Receive stopped at %d of %d without an error", c.recv.position, tail)
		}
	})
}

func FuzzExecuted(f *testing.F) {
	f.Add(make([]byte, ExecutedSize))
	one := make([]byte, ExecutedSize+ResponseSize+DescriptorSize+8)
	le.PutUint32(one, 1)
	le.PutUint16(one[ExecutedSize+12:], 1)
	one[ExecutedSize+ResponseSize+3] = 1
	f.Add(one)
	for _, name := range []string{"executed", "executed_failed", "response"} {
		frame, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame[HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := ParseExecuted(body)
		if err != nil {
			return
		}
		var r ResponseBody
		for n := 0; ; n++ {
			ok, err := e.NextResponse(&r)
			if err != nil || !ok {
				break
			}
			if n > len(body)/ResponseSize {
				t.Fatalf("%d responses in %d bytes", n, len(body))
			}
			for _, d := range r.Outputs {
				if d.Region == InFrame {
					_, _ = d.InlineBytes(body)
				}
			}
		}
		_, _ = ParseResponse(body, &r)
	})
}
