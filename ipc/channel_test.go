package ipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/shm"
)

// TestFramesPassBothRings sends frames of all sizes down, which a peer echoes, so
// that both rings wrap many times.
func TestFramesPassBothRings(t *testing.T) {
	for _, backing := range []shm.Backing{shm.Memfd{}, shm.Named{Prefix: "t_", Dir: t.TempDir()}} {
		t.Run(fmt.Sprintf("%T", backing), func(t *testing.T) {
			c, p := newChannel(t, Config{Backing: backing})
			const frames = 2000
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					f, err := p.receive()
					if err != nil {
						return
					}
					p.send(Released, f.ID, f.Body)
				}
			})
			defer wg.Wait()

			next, finished := uint64(0), make(chan struct{})
			stop := run(t, c, func(f Frame) error {
				if f.ID != next || f.Kind != Released {
					t.Errorf("frame: got %s %d, want RELEASED %d", f.Kind, f.ID, next)
				}
				if want := pattern(int(f.ID)); !bytes.Equal(f.Body, want) {
					t.Errorf("frame %d: got %d bytes, want %d of its pattern", f.ID, len(f.Body), len(want))
				}
				if next++; next == frames {
					close(finished)
				}
				return nil
			})
			for i := range frames {
				if err := c.Send(Execute, uint64(i), pattern(i)); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-finished:
			case <-time.After(time.Minute):
				t.Fatalf("only %d of %d frames came back", next, frames)
			}
			if err := stop(); err != nil {
				t.Fatalf("Run: %v", err)
			}
		})
	}
}

// pattern is a body that tells its number; sizes vary, the largest fill a frame.
func pattern(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	n := r.IntN(200)
	if i%50 == 0 {
		n = r.IntN(MaxFrame - HeaderSize + 1)
	}
	return bytes.Repeat([]byte{byte(i)}, n)
}

func TestSpinTakesAnswers(t *testing.T) {
	c, p := newChannel(t, Config{})
	done := make(chan struct{}, 1)
	handle := func(f Frame) error {
		done <- struct{}{}
		return nil
	}
	stop := run(t, c, handle)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			f, err := p.receive()
			if err != nil {
				return
			}
			p.send(Released, f.ID, nil)
		}
	})
	for i := range 1000 {
		if err := c.Send(Execute, uint64(i), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Spin(50*time.Microsecond, done, handle, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("answer %d did not come", i)
		}
	}
	_ = stop()
	wg.Wait()
}

// TestSpinTellsWhenAFrameWasSeen of the first frame that a look has found: those behind it wait for its handler. Without a look nothing is
// told.
func TestSpinTellsWhenAFrameWasSeen(t *testing.T) {
	c, p := newChannel(t, Config{})
	var frames []Frame
	done := make(chan struct{}, 3) // a value for each frame
	handle := func(f Frame) error {
		frames = append(frames, f)
		done <- struct{}{}
		return nil
	}
	p.send(Released, 1, nil)
	p.send(Released, 2, nil)
	before := now()
	if _, err := c.Spin(time.Minute, done, handle, nil); err != nil {
		t.Fatal(err)
	}
	after := now()
	if len(frames) != 2 || frames[0].Seen < before || frames[0].Seen > after || frames[1].Seen != 0 {
		t.Errorf("Spin: got frames %+v, want two, of which the first was seen between %d and %d", frames, before, after)
	}
	p.send(Released, 3, nil)
	if n, err := c.Receive(handle); n != 1 || err != nil || frames[2].Seen != 0 {
		t.Errorf("Receive: got %d frames, the last %+v (error %v), want one that no look has seen", n, frames[len(frames)-1], err)
	}
}

// TestReceiveReturnsFromAFlood has the stub send another frame whenever one is handled. Each call
// takes a ringful at most, and no frame is lost.
func TestReceiveReturnsFromAFlood(t *testing.T) {
	c, p := newChannel(t, Config{})
	const ringful = shm.RingSize / HeaderSize
	next := uint64(0)
	flood := func(f Frame) error {
		if f.ID != next {
			t.Fatalf("frame: got %d, want %d", f.ID, next)
		}
		if next++; next > 3*ringful {
			t.Fatal("Receive does not return")
		}
		p.send(Released, next, nil)
		return nil
	}
	p.send(Released, 0, nil)
	for range 2 {
		before := next
		if n, err := c.Receive(flood); err != nil || uint64(n) != next-before || n > ringful+1 {
			t.Fatalf("Receive: got %d frames and error %v, want %d and none", n, err, next-before)
		}
	}
}

func TestABacklogIsBounded(t *testing.T) {
	c, _ := newChannel(t, Config{MaxPending: 1 << 20})
	body := make([]byte, 10_000)
	for i := range 1000 {
		err := c.Send(Execute, uint64(i), body)
		if err == nil {
			continue
		}
		var broke *ProtocolError
		if !errors.As(err, &broke) || broke.Rule != "backlog" {
			t.Fatalf("Send %d: got %v, want a backlog error", i, err)
		}
		if i < 100 {
			t.Fatalf("Send %d of 10000 bytes: refused too early", i)
		}
		return
	}
	t.Fatal("10 MB of frames were taken for a stub that does not read")
}

func TestRunEndsWhenThePeerCloses(t *testing.T) {
	c, p := newChannel(t, Config{})
	got := make(chan Frame, 1)
	done := make(chan error, 1)
	go func() {
		done <- c.Run(func(f Frame) error {
			got <- f
			return nil
		})
	}()
	p.send(Hello, 42, []byte("x"))
	p.files.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run did not notice the end of file")
	}
	if f := <-got; f.Kind != Hello || f.ID != 42 {
		t.Fatalf("last frame: got %s %d, want HELLO 42", f.Kind, f.ID)
	}
}

// TestBrokenRingsEndTheLife is a table of writes that are forbidden to a stub.
func TestBrokenRingsEndTheLife(t *testing.T) {
	frame := func(p *peer, size int, kind Kind, flags uint16, life uint32) {
		putHeader(p.up[shm.RingOffset:], size, kind, flags, life, 0)
	}
	tail := func(p *peer, n uint64) { word(p.up, shm.TailOffset).Store(n) }
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
			ch, p := newChannel(t, Config{})
			c.do(p)
			_, err := ch.Receive(func(Frame) error { return nil })
			var broke *ProtocolError
			if !errors.As(err, &broke) || broke.Rule != c.rule {
				t.Fatalf("Receive: got %v, want a ProtocolError of rule %q", err, c.rule)
			}
		})
	}
}

func TestHeadThatMakesNoSense(t *testing.T) {
	for _, head := range []uint64{1, ^uint64(0), 1 << 40} {
		c, p := newChannel(t, Config{})
		word(p.up, shm.HeadOffset).Store(head)
		var err error
		for i := 0; err == nil && i < 100; i++ {
			err = c.Send(Execute, 0, make([]byte, 30_000))
		}
		var broke *ProtocolError
		if !errors.As(err, &broke) || broke.Rule != "head" {
			t.Errorf("Send with head %d: got %v, want a ProtocolError of rule head", head, err)
		}
	}
}

func TestTruncatedUpFileIsAnError(t *testing.T) {
	c, p := newChannel(t, Config{Backing: shm.Named{Prefix: "t_", Dir: t.TempDir()}})
	if err := p.files.Up.Truncate(0); err != nil {
		t.Fatal(err)
	}
	_, err := c.Receive(func(Frame) error { return nil })
	var broke *ProtocolError
	if !errors.As(err, &broke) || broke.Rule != "memory" {
		t.Fatalf("Receive: got %v, want a ProtocolError of rule memory", err)
	}
	if err := c.Send(Execute, 1, nil); err != nil {
		t.Logf("Send: %v", err)
	}
}

func TestReturnRingGivesTicketsBack(t *testing.T) {
	c, p := newChannel(t, Config{})
	for i := range 10 {
		e, _, err := c.Arena().Lend(shm.Ticket(100+i), shm.ArenaOffset, 8)
		if err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	if got := word(p.down, shm.ReturnOffset).Load(); got != 10 {
		t.Fatalf("returned: got %d, want 10", got)
	}
	if got := binary.LittleEndian.Uint64(p.down[shm.ReturnRingOffset+9*8:]); got != 109 {
		t.Fatalf("last ticket: got %d, want 109", got)
	}
}

func TestNamedFilesLoseTheirNamesOnceAttached(t *testing.T) {
	dir := t.TempDir()
	c, _ := newChannel(t, Config{Backing: shm.Named{Prefix: "nereid_test_", Dir: dir}})
	names, _ := os.ReadDir(dir)
	if len(names) != 2 || !strings.HasPrefix(names[0].Name(), "nereid_test_") {
		t.Fatalf("names: got %v, want two with the prefix", names)
	}
	if err := c.Attached(); err != nil {
		t.Fatal(err)
	}
	if names, _ = os.ReadDir(dir); len(names) != 0 {
		t.Fatalf("names after Attached: got %v, want none", names)
	}
}

// FuzzRing gives Receive a ring with any content and any tail.
func FuzzRing(f *testing.F) {
	var header [HeaderSize]byte
	putHeader(header[:], 32, Hello, 0, 3, 1)
	f.Add(append(header[:], make([]byte, 8)...), uint64(32))
	putHeader(header[:], HeaderSize+DescriptorSize, Executed, FlagSpilled, 3, 1)
	f.Add(append(header[:], make([]byte, DescriptorSize)...), uint64(64))
	f.Fuzz(func(t *testing.T, content []byte, tail uint64) {
		c, p := newChannel(t, Config{})
		copy(p.up[shm.RingOffset:shm.ArenaOffset], content)
		word(p.up, shm.TailOffset).Store(tail)
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

func BenchmarkRoundTripInProcess(b *testing.B) {
	c, p := newChannel(b, Config{})
	done := make(chan struct{}, 1)
	handle := func(Frame) error {
		done <- struct{}{}
		return nil
	}
	stop := run(b, c, handle)
	go func() {
		for {
			f, err := p.receive()
			if err != nil {
				return
			}
			p.send(Released, f.ID, f.Body)
		}
	}()
	body := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Send(Execute, 1, body)
		<-done
	}
	_ = stop()
}
