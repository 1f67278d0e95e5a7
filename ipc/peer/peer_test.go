package peer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
	"github.com/nereid-serving/nereid/shm"
)

// TestFramesOfAllSizesPassBothWays sends frames of random sizes both ways at once, at full speed
// and with pauses in which both sides fall asleep. Full rings, PADs and every kind of wake-up
// occur.
func TestFramesOfAllSizesPassBothWays(t *testing.T) {
	for _, spin := range []time.Duration{0, 50 * time.Microsecond} {
		t.Run(fmt.Sprint(spin), func(t *testing.T) {
			const frames = 3000
			size := func(i int) int { return int(rand.New(rand.NewPCG(uint64(i), 5)).Uint32N(9000)) / (1 + i%7) }
			up := make(chan error, 1)
			received := 0
			box := peer.NewBox()
			r := peer.NewFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error {
				if f.ID != uint64(received) || f.Kind != ipc.Log || len(f.Body) != size(received) {
					up <- fmt.Errorf("frame %d: got %s %d of %d bytes, want %d bytes", received, f.Kind, f.ID, len(f.Body), size(received))
				}
				peer.SameBytes(t, "up", f.Body, testkit.Pattern(len(f.Body), received))
				if received++; received == frames {
					up <- nil
				}
				return nil
			}, peer.Into(box))
			r.Peer.SetSpin(peer.NewSpin(spin))
			go func() {
				for i := range frames {
					if err := r.Peer.Send(ipc.Log, uint64(i), testkit.Pattern(size(i), i)); err != nil {
						up <- err
						return
					}
					if i%100 == 0 {
						time.Sleep(time.Millisecond) // the supervisor may fall asleep; both cases are wanted
					}
				}
			}()
			go func() {
				for i := range frames {
					if err := r.Channel.Send(ipc.Cancel, uint64(i), testkit.Pattern(size(i), i)); err != nil {
						up <- err
						return
					}
					if i%97 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			}()
			for i := range frames {
				m := r.Receive(box)
				if m.ID != uint64(i) || m.Kind != ipc.Cancel {
					t.Fatalf("got %s %d, want number %d", m.Kind, m.ID, i)
				}
				peer.SameBytes(t, "down", m.Body, testkit.Pattern(size(i), i))
			}
			if err := peer.Within(t, "frames of the peer", up); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoroutinesReadForOneAnother checks that each of many waiting goroutines gets its own frames
// in order, whichever goroutine reads them.
func TestGoroutinesReadForOneAnother(t *testing.T) {
	const goroutines, rounds = 8, 400
	boxes := make([]*peer.Box, goroutines)
	for i := range boxes {
		boxes[i] = peer.NewBox()
	}
	r := peer.NewFixture(t, ipc.Config{}, func(c *ipc.Channel, f ipc.Frame) error { return c.Send(ipc.Result, f.ID, f.Body) }, func(m peer.Message) *peer.Box { return boxes[m.ID%goroutines] })
	var all sync.WaitGroup
	for i, box := range boxes {
		all.Go(func() {
			spin := peer.NewSpin(20 * time.Microsecond)
			for round := range rounds {
				id := uint64(round*goroutines + i)
				if err := r.Peer.Send(ipc.Call, id, testkit.Pattern(round%50, i)); err != nil {
					t.Error(err)
					return
				}
				m, err := r.Peer.Receive(box, &spin, 0)
				if err != nil || m.ID != id || len(m.Body) != round%50 {
					t.Errorf("goroutine %d: got %d of %d bytes, error %v, want %d", i, m.ID, len(m.Body), err, id)
					return
				}
				if i == 3 {
					r.Peer.Look()
				}
			}
		})
	}
	all.Wait()
}

// TestBatchesAheadAreSeenByOneSideAtLeast checks that a batch is never both begun by the peer and
// certainly withdrawn by the server.
func TestBatchesAheadAreSeenByOneSideAtLeast(t *testing.T) {
	r := peer.NewFixture(t, ipc.Config{}, nil, peer.Into(peer.NewBox()))
	both := 0
	for number := uint64(1); number <= 2000; number++ {
		certain := make(chan bool, 1)
		go func() { certain <- r.Channel.Withdraw(number) }()
		begun := r.Peer.BeginAhead(number)
		if <-certain && begun {
			both++
		}
	}
	if both != 0 {
		t.Errorf("%d batches were begun here and certainly withdrawn there", both)
	}
	if !r.Peer.BeginAhead(2001) {
		t.Error("a batch that was not withdrawn is not begun")
	}
}

// TestLongBodiesTravelInBlocks spills bodies in both directions and checks that each block is
// returned.
func TestLongBodiesTravelInBlocks(t *testing.T) {
	box := peer.NewBox()
	up := make(chan ipc.Frame, 8)
	r := peer.NewFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error { up <- f; return nil }, peer.Into(box))
	if err := r.Peer.Send(ipc.Log, 1, make([]byte, ipc.MaxInlineBody+1)); err == nil {
		t.Error("a body was spilled before there was an arena")
	}
	arena := r.Peer.OpenArena(peer.Sizes{Default: 1 << 20, Growth: 1 << 20})
	long := testkit.Pattern(100_000, 3)
	for range 3 {
		if err := r.Peer.Send(ipc.Executed, 5, long); err != nil {
			t.Fatal(err)
		}
		f := peer.Within(t, "spilled body", up)
		if f.Kind != ipc.Executed || f.ID != 5 {
			t.Errorf("got %s %d", f.Kind, f.ID)
		}
		peer.SameBytes(t, "spilled up", f.Body, long)
	}
	testkit.Eventually(t, peer.Patience, func() bool { return !arena.Lent() })
	var exhausted *peer.Exhausted
	if err := r.Peer.Send(ipc.Executed, 5, make([]byte, ipc.MaxSpilledBody+1)); !errors.As(err, &exhausted) {
		t.Errorf("a body above the limit: got error %v", err)
	}

	if err := r.Requests.Reserve(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	memory, _ := r.Requests.Bytes(8192, uint64(len(long)))
	copy(memory, long)
	for _, offset := range []uint64{8192, 1 << 40} {
		d := ipc.Descriptor{Type: 2, Region: ipc.InRequests, Offset: offset, Length: uint64(len(long)), Ticket: 77 + offset}
		if _, _, err := r.Channel.Fill(ipc.Execute, 9, ipc.DescriptorSize, func(frame []byte) {
			ipc.SetSpilled(frame)
			ipc.SetAhead(frame)
			d.Put(frame[ipc.HeaderSize:])
		}); err != nil {
			t.Fatal(err)
		}
		m := r.Receive(box)
		if m.Kind != ipc.Execute || m.ID != 9 || !m.Ahead || (m.Lost != nil) != (offset > 8192) {
			t.Errorf("got %s %d ahead %v lost %v", m.Kind, m.ID, m.Ahead, m.Lost)
		}
		if m.Lost == nil {
			peer.SameBytes(t, "spilled down", m.Body, long)
		}
		back := peer.Within(t, "ticket of the body", up)
		if back.Kind != ipc.Released || ipc.Ticket(back.Body, 0) != 77+offset {
			t.Errorf("got %s of %x, want the ticket", back.Kind, back.Body)
		}
	}
}

// TestRingThatCannotBeTrustedEndsTheConnection checks that a frame of another life is a
// ProtocolError.
func TestRingThatCannotBeTrustedEndsTheConnection(t *testing.T) {
	box := peer.NewBox()
	r := peer.NewFixture(t, ipc.Config{}, nil, peer.Into(box))
	// A valid frame, changed to another life.
	frame, err := r.Channel.Begin(ipc.Cancel, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	frame[8]++
	r.Channel.Commit()
	_, err = r.Peer.Receive(box, nil, 0)
	var broken *ipc.ProtocolError
	if !errors.As(err, &broken) || broken.Rule != "life" {
		t.Errorf("got error %v, want a frame of another life to be refused", err)
	}
	if again := r.Peer.Err(); !errors.Is(again, err) {
		t.Errorf("Err: got %v", again)
	}
}

// TestAttachRefusesOtherProtocols checks that Attach rejects a file with another magic number or
// version.
func TestAttachRefusesOtherProtocols(t *testing.T) {
	for _, offset := range []int{shm.MagicOffset, shm.VersionOffset} {
		down, err := shm.NewRegion(shm.Memfd{}, shm.DownSize, shm.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		down.Uint32(shm.MagicOffset).Store(shm.Magic)
		down.Uint32(shm.VersionOffset).Store(shm.Version)
		down.Uint32(offset).Store(99)
		channel, err := ipc.New(ipc.Config{Life: 1, UpSize: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		files := channel.Peer()
		_ = files.Down.Close()
		readable, err := down.OpenReadOnly()
		if err != nil {
			t.Fatal(err)
		}
		requests, err := down.OpenReadOnly()
		if err != nil {
			t.Fatal(err)
		}
		p, err := peer.Attach(peer.Files{readable, files.Up, requests, files.DownBell, files.UpBell}, nil)
		var broken *ipc.ProtocolError
		if p != nil || !errors.As(err, &broken) {
			t.Errorf("word at %d: got error %v, want a ProtocolError", offset, err)
		}
		_ = files.Lifeline.Close()
		channel.Close()
		down.Release()
	}
}

// TestAReadingOfTheClockGoesAlong checks that a frame's publication time is the caller's clock
// reading. Only the goroutine that polled for a frame gets the time at which it was seen.
func TestAReadingOfTheClockGoesAlong(t *testing.T) {
	posted := make(chan int64, 1)
	box, others := peer.NewBox(), peer.NewBox()
	r := peer.NewFixture(t, ipc.Config{}, func(c *ipc.Channel, _ ipc.Frame) error {
		posted <- c.Posted()
		return nil
	}, func(m peer.Message) *peer.Box {
		if m.ID == 1 {
			return others
		}
		return box
	})
	r.Peer.SetSpin(peer.NewSpin(time.Minute))
	if err := r.Peer.FillAt(12345, ipc.Log, 1, 0, func([]byte) {}); err != nil {
		t.Fatal(err)
	}
	if at := peer.Within(t, "frame", posted); at != 12345 {
		t.Errorf("the frame was published at %d, want the caller's reading", at)
	}
	before := peer.Now()
	if err := r.Peer.Fill(ipc.Log, 2, 0, func([]byte) {}); err != nil {
		t.Fatal(err)
	}
	if at := peer.Within(t, "frame", posted); at < before {
		t.Errorf("the frame was published at %d, want at %d or later", at, before)
	}
	for id := range uint64(2) { // frame 1 is for others, but this goroutine reads it too
		if err := r.Channel.Send(ipc.Cancel, 1-id, nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.Receive(box)
	if m, ok := others.Take(); !ok || m.Seen != 0 {
		t.Errorf("got %+v (%v), want a frame of which nothing is known, as another goroutine has read it", m, ok)
	}
	// Seen stays 0 if the frame was already there or the goroutine slept, so retry until a poll
	// sees one.
	for deadline := time.Now().Add(peer.Patience); ; {
		sent := make(chan error, 1)
		since := peer.Now()
		go func() {
			runtime.Gosched()
			sent <- r.Channel.Send(ipc.Cancel, 0, nil)
		}()
		m, err := r.Peer.Receive(box, nil, since)
		if err := errors.Join(err, peer.Within(t, "send", sent)); err != nil {
			t.Fatal(err)
		}
		if m.Seen != 0 {
			if m.Seen < since || m.Seen > peer.Now() {
				t.Errorf("the frame was seen at %d, want between %d and now", m.Seen, since)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no look has seen a frame")
		}
	}
}
