package ipc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
			c, p := ipc.NewChannel(t, ipc.Config{Backing: backing})
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
			stop := ipc.Run(t, c, func(f ipc.Frame) error {
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
	c, p := ipc.NewChannel(t, ipc.Config{})
	done := make(chan struct{}, 1)
	handle := func(f ipc.Frame) error {
		done <- struct{}{}
		return nil
	}
	stop := ipc.Run(t, c, handle)
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
	c, p := ipc.NewChannel(t, ipc.Config{})
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
	c, _ := ipc.NewChannel(t, ipc.Config{MaxPending: 1 << 20})
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
	c, p := ipc.NewChannel(t, ipc.Config{})
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
		c, p := ipc.NewChannel(t, ipc.Config{})
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
	c, p := ipc.NewChannel(t, ipc.Config{Backing: shm.Named{Prefix: "t_", Dir: t.TempDir()}})
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
	c, p := ipc.NewChannel(t, ipc.Config{})
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
	c, _ := ipc.NewChannel(t, ipc.Config{Backing: shm.Named{Prefix: "nereid_test_", Dir: dir}})
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
	c, p := ipc.NewChannel(b, ipc.Config{})
	done := make(chan struct{}, 1)
	handle := func(ipc.Frame) error {
		done <- struct{}{}
		return nil
	}
	stop := ipc.Run(b, c, handle)
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
