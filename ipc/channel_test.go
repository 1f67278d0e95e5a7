package ipc_test

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

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestFramesPassBothRings sends frames of all sizes to a peer that echoes them, so that both rings
// wrap many times.
func TestFramesPassBothRings(t *testing.T) {
	for _, backing := range []shm.Backing{shm.Memfd{}, shm.Named{Prefix: "t_", Dir: t.TempDir()}} {
		t.Run(fmt.Sprintf("%T", backing), func(t *testing.T) {
			c, p := newChannel(t, ipc.Config{Backing: backing})
			const frames = 2000
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					f, err := p.Receive()
					if err != nil {
						return
					}
					p.Send(ipc.Released, f.ID, f.Body)
				}
			})
			defer wg.Wait()

			next, finished := uint64(0), make(chan struct{})
			stop := run(t, c, func(f ipc.Frame) error {
				if f.ID != next || f.Kind != ipc.Released {
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
				if err := c.Send(ipc.Execute, uint64(i), pattern(i)); err != nil {
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

// pattern returns the body of frame i. Sizes vary; the largest fill a frame.
func pattern(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	n := r.IntN(200)
	if i%50 == 0 {
		n = r.IntN(ipc.MaxFrame - ipc.HeaderSize + 1)
	}
	return bytes.Repeat([]byte{byte(i)}, n)
}

func TestSpinTakesAnswers(t *testing.T) {
	c, p := newChannel(t, ipc.Config{})
	done := make(chan struct{}, 1)
	handle := func(f ipc.Frame) error {
		done <- struct{}{}
		return nil
	}
	stop := run(t, c, handle)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			f, err := p.Receive()
			if err != nil {
				return
			}
			p.Send(ipc.Released, f.ID, nil)
		}
	})
	for i := range 1000 {
		if err := c.Send(ipc.Execute, uint64(i), nil); err != nil {
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

// TestReceiveReturnsFromAFlood checks that Receive returns although the stub sends a new frame for
// each handled one. Each call takes at most one ringful, and no frame is lost.
func TestReceiveReturnsFromAFlood(t *testing.T) {
	c, p := newChannel(t, ipc.Config{})
	const ringful = shm.RingSize / ipc.HeaderSize
	next := uint64(0)
	flood := func(f ipc.Frame) error {
		if f.ID != next {
			t.Fatalf("frame: got %d, want %d", f.ID, next)
		}
		if next++; next > 3*ringful {
			t.Fatal("Receive does not return")
		}
		p.Send(ipc.Released, next, nil)
		return nil
	}
	p.Send(ipc.Released, 0, nil)
	for range 2 {
		before := next
		if n, err := c.Receive(flood); err != nil || uint64(n) != next-before || n > ringful+1 {
			t.Fatalf("Receive: got %d frames and error %v, want %d and none", n, err, next-before)
		}
	}
}

func TestABacklogIsBounded(t *testing.T) {
	c, _ := newChannel(t, ipc.Config{MaxPending: 1 << 20})
	body := make([]byte, 10_000)
	for i := range 1000 {
		err := c.Send(ipc.Execute, uint64(i), body)
		if err == nil {
			continue
		}
		var broke *ipc.ProtocolError
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
	c, p := newChannel(t, ipc.Config{})
	got := make(chan ipc.Frame, 1)
	done := make(chan error, 1)
	go func() {
		done <- c.Run(func(f ipc.Frame) error {
			got <- f
			return nil
		})
	}()
	p.Send(ipc.Hello, 42, []byte("x"))
	p.Files.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run did not notice the end of file")
	}
	if f := <-got; f.Kind != ipc.Hello || f.ID != 42 {
		t.Fatalf("last frame: got %s %d, want HELLO 42", f.Kind, f.ID)
	}
}

func TestHeadThatMakesNoSense(t *testing.T) {
	for _, head := range []uint64{1, ^uint64(0), 1 << 40} {
		c, p := newChannel(t, ipc.Config{})
		p.UpWord(shm.HeadOffset).Store(head)
		var err error
		for i := 0; err == nil && i < 100; i++ {
			err = c.Send(ipc.Execute, 0, make([]byte, 30_000))
		}
		var broke *ipc.ProtocolError
		if !errors.As(err, &broke) || broke.Rule != "head" {
			t.Errorf("Send with head %d: got %v, want a ProtocolError of rule head", head, err)
		}
	}
}

func TestTruncatedUpFileIsAnError(t *testing.T) {
	c, p := newChannel(t, ipc.Config{Backing: shm.Named{Prefix: "t_", Dir: t.TempDir()}})
	if err := p.Files.Up.Truncate(0); err != nil {
		t.Fatal(err)
	}
	_, err := c.Receive(func(ipc.Frame) error { return nil })
	var broke *ipc.ProtocolError
	if !errors.As(err, &broke) || broke.Rule != "memory" {
		t.Fatalf("Receive: got %v, want a ProtocolError of rule memory", err)
	}
	if err := c.Send(ipc.Execute, 1, nil); err != nil {
		t.Logf("Send: %v", err)
	}
}

func TestReturnRingGivesTicketsBack(t *testing.T) {
	c, p := newChannel(t, ipc.Config{})
	for i := range 10 {
		e, _, err := c.Arena().Lend(shm.Ticket(100+i), shm.ArenaOffset, 8)
		if err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	if got := p.DownWord(shm.ReturnOffset).Load(); got != 10 {
		t.Fatalf("returned: got %d, want 10", got)
	}
	if got := binary.LittleEndian.Uint64(p.Down[shm.ReturnRingOffset+9*8:]); got != 109 {
		t.Fatalf("last ticket: got %d, want 109", got)
	}
}

func TestNamedFilesLoseTheirNamesOnceAttached(t *testing.T) {
	dir := t.TempDir()
	c, _ := newChannel(t, ipc.Config{Backing: shm.Named{Prefix: "nereid_test_", Dir: dir}})
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

func BenchmarkRoundTripInProcess(b *testing.B) {
	c, p := newChannel(b, ipc.Config{})
	done := make(chan struct{}, 1)
	handle := func(ipc.Frame) error {
		done <- struct{}{}
		return nil
	}
	stop := run(b, c, handle)
	go func() {
		for {
			f, err := p.Receive()
			if err != nil {
				return
			}
			p.Send(ipc.Released, f.ID, f.Body)
		}
	}()
	body := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Send(ipc.Execute, 1, body)
		<-done
	}
	_ = stop()
}

// TestSpinTellsWhenAFrameWasSeen checks that only the first frame found by Spin has a Seen time.
// Later frames waited for the first one's handler. Receive sets no time.
func TestSpinTellsWhenAFrameWasSeen(t *testing.T) {
	c, p := newChannel(t, ipc.Config{})
	var frames []ipc.Frame
	done := make(chan struct{}, 3) // one value per frame
	handle := func(f ipc.Frame) error {
		frames = append(frames, f)
		done <- struct{}{}
		return nil
	}
	p.Send(ipc.Released, 1, nil)
	p.Send(ipc.Released, 2, nil)
	before := ipc.Now()
	if _, err := c.Spin(time.Minute, done, handle, nil); err != nil {
		t.Fatal(err)
	}
	after := ipc.Now()
	if len(frames) != 2 || frames[0].Seen < before || frames[0].Seen > after || frames[1].Seen != 0 {
		t.Errorf("Spin: got frames %+v, want two, of which the first was seen between %d and %d", frames, before, after)
	}
	p.Send(ipc.Released, 3, nil)
	if n, err := c.Receive(handle); n != 1 || err != nil || frames[2].Seen != 0 {
		t.Errorf("Receive: got %d frames, the last %+v (error %v), want one that no look has seen", n, frames[len(frames)-1], err)
	}
}

// TestBrokenRingsEndTheLife checks that each write that is forbidden to a stub ends in a
// ProtocolError with the right rule.
func TestBrokenRingsEndTheLife(t *testing.T) {
	frame := func(p *peer, size int, kind ipc.Kind, flags uint16, life uint32) {
		ipc.PutHeader(p.Up[shm.RingOffset:], size, kind, flags, life, 0)
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
		{"size below a header", "frame", func(p *peer) { frame(p, 8, ipc.Hello, 0, p.life); tail(p, 64) }},
		{"size beyond the tail", "frame", func(p *peer) { frame(p, 200, ipc.Hello, 0, p.life); tail(p, 64) }},
		{"size beyond a frame", "frame", func(p *peer) { frame(p, ipc.MaxFrame+8, ipc.Hello, 0, p.life); tail(p, shm.RingSize) }},
		{"header cut off", "frame", func(p *peer) { frame(p, 24, ipc.Hello, 0, p.life); tail(p, 8) }},
		{"pad that does not end with the ring", "frame", func(p *peer) { frame(p, 64, ipc.Pad, 0, p.life); tail(p, 64) }},
		{"another life", "life", func(p *peer) { frame(p, 24, ipc.Hello, 0, p.life+1); tail(p, 24) }},
		{"unknown flags", "frame", func(p *peer) { frame(p, 24, ipc.Hello, 6, p.life); tail(p, 24) }},
		{"spilled without a descriptor", "frame", func(p *peer) { frame(p, 24, ipc.Hello, ipc.FlagSpilled, p.life); tail(p, 24) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch, p := newChannel(t, ipc.Config{})
			c.do(p)
			_, err := ch.Receive(func(ipc.Frame) error { return nil })
			var broke *ipc.ProtocolError
			if !errors.As(err, &broke) || broke.Rule != c.rule {
				t.Fatalf("Receive: got %v, want a ProtocolError of rule %q", err, c.rule)
			}
		})
	}
}

// FuzzRing calls Receive on a ring with arbitrary content and an arbitrary tail.
func FuzzRing(f *testing.F) {
	var header [ipc.HeaderSize]byte
	ipc.PutHeader(header[:], 32, ipc.Hello, 0, 3, 1)
	f.Add(append(header[:], make([]byte, 8)...), uint64(32))
	ipc.PutHeader(header[:], ipc.HeaderSize+ipc.DescriptorSize, ipc.Executed, ipc.FlagSpilled, 3, 1)
	f.Add(append(header[:], make([]byte, ipc.DescriptorSize)...), uint64(64))
	f.Fuzz(func(t *testing.T, content []byte, tail uint64) {
		c, p := newChannel(t, ipc.Config{})
		copy(p.Up[shm.RingOffset:shm.ArenaOffset], content)
		p.UpWord(shm.TailOffset).Store(tail)
		_, err := c.Receive(func(f ipc.Frame) error {
			if len(f.Body) > ipc.MaxFrame && f.Kind != ipc.Executed {
				t.Fatalf("frame of %d bytes", len(f.Body))
			}
			return nil
		})
		if head := p.DownWord(shm.HeadOffset).Load(); err == nil && head != tail {
			t.Fatalf("Receive stopped at %d of %d without an error", head, tail)
		}
	})
}

func FuzzExecuted(f *testing.F) {
	f.Add(make([]byte, ipc.ExecutedSize))
	one := make([]byte, ipc.ExecutedSize+ipc.ResponseSize+ipc.DescriptorSize+8)
	le.PutUint32(one, 1)
	le.PutUint16(one[ipc.ExecutedSize+12:], 1)
	one[ipc.ExecutedSize+ipc.ResponseSize+3] = 1
	f.Add(one)
	for _, name := range []string{"executed", "executed_failed", "response"} {
		frame, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame[ipc.HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := ipc.ParseExecuted(body)
		if err != nil {
			return
		}
		var r ipc.ResponseBody
		for n := 0; ; n++ {
			ok, err := e.NextResponse(&r)
			if err != nil || !ok {
				break
			}
			if n > len(body)/ipc.ResponseSize {
				t.Fatalf("%d responses in %d bytes", n, len(body))
			}
			for _, d := range r.Outputs {
				if d.Region == ipc.InFrame {
					_, _ = d.InlineBytes(body)
				}
			}
		}
		_, _ = ipc.ParseResponse(body, &r)
	})
}
