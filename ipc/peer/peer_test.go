package peer

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
	"github.com/nereid-serving/nereid/shm"
)

// TestFramesOfAllSizesPassBothWays sends frames of random sizes both ways at once, as fast as it goes and with pauses
// in which both sides fall asleep: full rings, PADs and every kind of wake-up occur.
func TestFramesOfAllSizesPassBothWays(t *testing.T) {
	for _, spin := range []time.Duration{0, 50 * time.Microsecond} {
		t.Run(fmt.Sprint(spin), func(t *testing.T) {
			const frames = 3000
			size := func(i int) int { return int(rand.New(rand.NewPCG(uint64(i), 5)).Uint32N(9000)) / (1 + i%7) }
			up := make(chan error, 1)
			received := 0
			box := NewBox()
			r := newFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error {
				if f.ID != uint64(received) || f.Kind != ipc.Log || len(f.Body) != size(received) {
					up <- fmt.Errorf("frame %d: got %s %d of %d bytes, want %d bytes", received, f.Kind, f.ID, len(f.Body), size(received))
				}
				sameBytes(t, "up", f.Body, pattern(len(f.Body), received))
				if received++; received == frames {
					up <- nil
				}
				return nil
			}, into(box))
			r.peer.SetSpin(NewSpin(spin))
			go func() {
				for i := range frames {
					if err := r.peer.Send(ipc.Log, uint64(i), pattern(size(i), i)); err != nil {
						up <- err
						return
					}
					if i%100 == 0 {
						time.Sleep(time.Millisecond) // the supervisor falls asleep, or not: both are wanted
					}
				}
			}()
			go func() {
				for i := range frames {
					if err := r.channel.Send(ipc.Cancel, uint64(i), pattern(size(i), i)); err != nil {
						up <- err
						return
					}
					if i%97 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			}()
			for i := range frames {
				m := r.receive(box)
				if m.ID != uint64(i) || m.Kind != ipc.Cancel {
					t.Fatalf("got %s %d, want number %d", m.Kind, m.ID, i)
				}
				sameBytes(t, "down", m.Body, pattern(size(i), i))
			}
			if err := within(t, "frames of the peer", up); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoroutinesReadForOneAnother has many goroutines wait for frames of their own; whichever reads, each gets its
// own, in order.
func TestGoroutinesReadForOneAnother(t *testing.T) {
	const goroutines, rounds = 8, 400
	boxes := make([]*Box, goroutines)
	for i := range boxes {
		boxes[i] = NewBox()
	}
	r := newFixture(t, ipc.Config{}, func(c *ipc.Channel, f ipc.Frame) error { return c.Send(ipc.Result, f.ID, f.Body) }, func(m Message) *Box { return boxes[m.ID%goroutines] })
	var all sync.WaitGroup
	for i, box := range boxes {
		all.Go(func() {
			spin := NewSpin(20 * time.Microsecond)
			for round := range rounds {
				id := uint64(round*goroutines + i)
				if err := r.peer.Send(ipc.Call, id, pattern(round%50, i)); err != nil {
					t.Error(err)
					return
				}
				m, err := r.peer.Receive(box, &spin, 0)
				if err != nil || m.ID != id || len(m.Body) != round%50 {
					t.Errorf("goroutine %d: got %d of %d bytes, error %v, want %d", i, m.ID, len(m.Body), err, id)
					return
				}
				if i == 3 {
					r.peer.Look()
				}
			}
		})
	}
	all.Wait()
}

// TestEndOfTheServerEndsEachWait has goroutines wait that read, and that do not.
func TestEndOfTheServerEndsEachWait(t *testing.T) {
	box := NewBox()
	r := newFixture(t, ipc.Config{}, nil, into(box))
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := r.peer.Receive(NewBox(), nil, 0)
			errs <- err
		}()
	}
	testkit.Eventually(t, patience, func() bool {
		r.peer.waiting.Lock()
		defer r.peer.waiting.Unlock()
		return len(r.peer.waiting.boxes) == 2
	})
	r.stop()
	for range 3 {
		if err := within(t, "end", errs); !errors.Is(err, ErrGone) {
			t.Errorf("got error %v, want ErrGone", err)
		}
	}
	if err := r.peer.Send(ipc.Log, 0, nil); !errors.Is(err, ErrGone) {
		t.Errorf("Send afterwards: got error %v, want ErrGone", err)
	}
}

// TestBatchesAheadAreSeenByOneSideAtLeast begins batches while they are withdrawn: never do both sides miss the
// other's word.
func TestBatchesAheadAreSeenByOneSideAtLeast(t *testing.T) {
	r := newFixture(t, ipc.Config{}, nil, into(NewBox()))
	both := 0
	for number := uint64(1); number <= 2000; number++ {
		certain := make(chan bool, 1)
		go func() { certain <- r.channel.Withdraw(number) }()
		begun := r.peer.BeginAhead(number)
		if <-certain && begun {
			both++
		}
	}
	if both != 0 {
		t.Errorf("%d batches were begun here and certainly withdrawn there", both)
	}
	if !r.peer.BeginAhead(2001) {
		t.Error("a batch that was not withdrawn is not begun")
	}
}

// TestLongBodiesTravelInBlocks spills bodies in both directions; each block comes back.
func TestLongBodiesTravelInBlocks(t *testing.T) {
	box := NewBox()
	up := make(chan ipc.Frame, 8)
	r := newFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error { up <- f; return nil }, into(box))
	if err := r.peer.Send(ipc.Log, 1, make([]byte, ipc.MaxInlineBody+1)); err == nil {
		t.Error("a body was spilled before there was an arena")
	}
	arena := r.peer.OpenArena(Sizes{Default: 1 << 20, Growth: 1 << 20})
	long := pattern(100_000, 3)
	for range 3 {
		if err := r.peer.Send(ipc.Executed, 5, long); err != nil {
			t.Fatal(err)
		}
		f := within(t, "spilled body", up)
		if f.Kind != ipc.Executed || f.ID != 5 {
			t.Errorf("got %s %d", f.Kind, f.ID)
		}
		sameBytes(t, "spilled up", f.Body, long)
	}
	testkit.Eventually(t, patience, func() bool { return !arena.Lent() })
	var exhausted *Exhausted
	if err := r.peer.Send(ipc.Executed, 5, make([]byte, ipc.MaxSpilledBody+1)); !errors.As(err, &exhausted) {
		t.Errorf("a body above the limit: got error %v", err)
	}

	if err := r.requests.Reserve(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	memory, _ := r.requests.Bytes(8192, uint64(len(long)))
	copy(memory, long)
	for _, offset := range []uint64{8192, 1 << 40} {
		d := ipc.Descriptor{Type: 2, Region: ipc.InRequests, Offset: offset, Length: uint64(len(long)), Ticket: 77 + offset}
		if _, _, err := r.channel.Fill(ipc.Execute, 9, ipc.DescriptorSize, func(frame []byte) {
			ipc.SetSpilled(frame)
			ipc.SetAhead(frame)
			d.Put(frame[ipc.HeaderSize:])
		}); err != nil {
			t.Fatal(err)
		}
		m := r.receive(box)
		if m.Kind != ipc.Execute || m.ID != 9 || !m.Ahead || (m.Lost != nil) != (offset > 8192) {
			t.Errorf("got %s %d ahead %v lost %v", m.Kind, m.ID, m.Ahead, m.Lost)
		}
		if m.Lost == nil {
			sameBytes(t, "spilled down", m.Body, long)
		}
		back := within(t, "ticket of the body", up)
		if back.Kind != ipc.Released || ipc.Ticket(back.Body, 0) != 77+offset {
			t.Errorf("got %s of %x, want the ticket", back.Kind, back.Body)
		}
	}
}

// TestTicketsWaitForTheAnswer gives tickets back while a batch is executed: they wait for the frame that takes them,
// unless they are many.
func TestTicketsWaitForTheAnswer(t *testing.T) {
	up := make(chan ipc.Frame, 200)
	r := newFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error { up <- f; return nil }, into(NewBox()))
	r.peer.HoldTickets(true)
	for ticket := range uint64(patientTickets) {
		r.peer.GiveBack(ticket)
	}
	if err := r.peer.Send(ipc.Log, 0, nil); err != nil {
		t.Fatal(err)
	}
	if f := within(t, "LOG", up); f.Kind != ipc.Log {
		t.Errorf("got %s before the answer, want LOG alone", f.Kind)
	}
	if got := r.peer.TakeTickets(nil); len(got) != patientTickets || got[3] != 3 {
		t.Errorf("got %d tickets for the answer, want %d", len(got), patientTickets)
	}
	for ticket := range uint64(patientTickets + 1) {
		r.peer.GiveBack(ticket)
	}
	if f := within(t, "RELEASED", up); f.Kind != ipc.Released || len(f.Body) != 8*(patientTickets+1) {
		t.Errorf("got %s of %d bytes, want %d tickets", f.Kind, len(f.Body), patientTickets+1)
	}
	r.peer.GiveBack(5)
	r.peer.HoldTickets(false)
	if err := r.peer.Send(ipc.Log, 0, nil); err != nil {
		t.Fatal(err)
	}
	within(t, "LOG", up)
	if f := within(t, "RELEASED", up); f.Kind != ipc.Released || ipc.Ticket(f.Body, 0) != 5 {
		t.Errorf("got %s, want the ticket behind the next frame", f.Kind)
	}
}

// TestRingThatCannotBeTrustedEndsTheConnection writes what no supervisor writes.
func TestRingThatCannotBeTrustedEndsTheConnection(t *testing.T) {
	box := NewBox()
	r := newFixture(t, ipc.Config{}, nil, into(box))
	// The supervisor's own frame, of another life.
	frame, err := r.channel.Begin(ipc.Cancel, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	frame[8]++
	r.channel.Commit()
	_, err = r.peer.Receive(box, nil, 0)
	var broken *ipc.ProtocolError
	if !errors.As(err, &broken) || broken.Rule != "life" {
		t.Errorf("got error %v, want a frame of another life to be refused", err)
	}
	if again := r.peer.Err(); !errors.Is(again, err) {
		t.Errorf("Err: got %v", again)
	}
}

// TestAttachRefusesOtherProtocols changes the beginning of the supervisor's file.
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
		p, err := Attach(Files{readable, files.Up, requests, files.DownBell, files.UpBell}, nil)
		var broken *ipc.ProtocolError
		if p != nil || !errors.As(err, &broken) {
			t.Errorf("word at %d: got error %v, want a ProtocolError", offset, err)
		}
		_ = files.Lifeline.Close()
		channel.Close()
		down.Release()
	}
}

// TestSpinOutlastsYieldsThatMadeTheFrame: where client, server and plugin share a core, each frame takes one long yield, in which the others
// make it. Spinning goes on then; it pauses if the yield has kept a frame waiting, or nothing has come of it.
func TestSpinOutlastsYieldsThatMadeTheFrame(t *testing.T) {
	for name, test := range map[string]struct {
		yield int64
		there bool
		age   int64
		want  bool
	}{
		"short":                                {slowYield, false, 0, false},
		"short, and the frame is old":          {slowYield, true, 10 * slowYield, false},
		"long, and no frame":                   {slowYield + 1, false, 10 * slowYield, true},
		"long, and the frame is fresh":         {80 * slowYield, true, slowYield, false},
		"long, and the frame has waited":       {80 * slowYield, true, slowYield + 1, true},
		"long, and the frame is from tomorrow": {80 * slowYield, true, -slowYield, false}, // a server may say that; it harms itself
	} {
		if got := slowed(test.yield, test.there, test.age); got != test.want {
			t.Errorf("a yield that is %s: got slow %v, want %v", name, got, test.want)
		}
	}
}

// TestAReadingOfTheClockGoesAlong: the caller's reading of the clock is when its frame was published, and when a look has seen a frame is told to the
// goroutine that looked, and to no other.
func TestAReadingOfTheClockGoesAlong(t *testing.T) {
	posted := make(chan int64, 1)
	box, others := NewBox(), NewBox()
	r := newFixture(t, ipc.Config{}, func(c *ipc.Channel, _ ipc.Frame) error {
		posted <- c.Posted()
		return nil
	}, func(m Message) *Box {
		if m.ID == 1 {
			return others
		}
		return box
	})
	r.peer.SetSpin(NewSpin(time.Minute))
	if err := r.peer.FillAt(12345, ipc.Log, 1, 0, func([]byte) {}); err != nil {
		t.Fatal(err)
	}
	if at := within(t, "frame", posted); at != 12345 {
		t.Errorf("the frame was published at %d, want the caller's reading", at)
	}
	before := Now()
	if err := r.peer.Fill(ipc.Log, 2, 0, func([]byte) {}); err != nil {
		t.Fatal(err)
	}
	if at := within(t, "frame", posted); at < before {
		t.Errorf("the frame was published at %d, want at %d or later", at, before)
	}
	for id := range uint64(2) { // frame 0 is for box, frame 1 for others: it is read by this goroutine, too
		if err := r.channel.Send(ipc.Cancel, 1-id, nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.receive(box)
	if m, ok := others.Take(); !ok || m.Seen != 0 {
		t.Errorf("got %+v (%v), want a frame of which nothing is known, as another goroutine has read it", m, ok)
	}
	// Where a frame is there at once, or the goroutine has slept, nothing was seen by a look: so until one was.
	for deadline := time.Now().Add(patience); ; {
		sent := make(chan error, 1)
		since := Now()
		go func() {
			runtime.Gosched()
			sent <- r.channel.Send(ipc.Cancel, 0, nil)
		}()
		m, err := r.peer.Receive(box, nil, since)
		if err := errors.Join(err, within(t, "send", sent)); err != nil {
			t.Fatal(err)
		}
		if m.Seen != 0 {
			if m.Seen < since || m.Seen > Now() {
				t.Errorf("the frame was seen at %d, want between %d and now", m.Seen, since)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no look has seen a frame")
		}
	}
}
