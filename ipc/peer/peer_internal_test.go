package peer

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
)

// TestEndOfTheServerEndsEachWait checks that Receive returns ErrGone both in the goroutine that
// reads and in the waiting ones.
func TestEndOfTheServerEndsEachWait(t *testing.T) {
	box := NewBox()
	r := NewFixture(t, ipc.Config{}, nil, Into(box))
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := r.Peer.Receive(NewBox(), nil, 0)
			errs <- err
		}()
	}
	testkit.Eventually(t, Patience, func() bool {
		r.Peer.waiting.Lock()
		defer r.Peer.waiting.Unlock()
		return len(r.Peer.waiting.boxes) == 2
	})
	r.stop()
	for range 3 {
		if err := Within(t, "end", errs); !errors.Is(err, ErrGone) {
			t.Errorf("got error %v, want ErrGone", err)
		}
	}
	if err := r.Peer.Send(ipc.Log, 0, nil); !errors.Is(err, ErrGone) {
		t.Errorf("Send afterwards: got error %v, want ErrGone", err)
	}
}

// TestTicketsWaitForTheAnswer checks that tickets returned during an execution wait for the frame
// that takes them. More than patientTickets are sent at once.
func TestTicketsWaitForTheAnswer(t *testing.T) {
	up := make(chan ipc.Frame, 200)
	r := NewFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error { up <- f; return nil }, Into(NewBox()))
	r.Peer.HoldTickets(true)
	for ticket := range uint64(patientTickets) {
		r.Peer.GiveBack(ticket)
	}
	if err := r.Peer.Send(ipc.Log, 0, nil); err != nil {
		t.Fatal(err)
	}
	if f := Within(t, "LOG", up); f.Kind != ipc.Log {
		t.Errorf("got %s before the answer, want LOG alone", f.Kind)
	}
	if got := r.Peer.TakeTickets(nil); len(got) != patientTickets || got[3] != 3 {
		t.Errorf("got %d tickets for the answer, want %d", len(got), patientTickets)
	}
	for ticket := range uint64(patientTickets + 1) {
		r.Peer.GiveBack(ticket)
	}
	if f := Within(t, "RELEASED", up); f.Kind != ipc.Released || len(f.Body) != 8*(patientTickets+1) {
		t.Errorf("got %s of %d bytes, want %d tickets", f.Kind, len(f.Body), patientTickets+1)
	}
	r.Peer.GiveBack(5)
	r.Peer.HoldTickets(false)
	if err := r.Peer.Send(ipc.Log, 0, nil); err != nil {
		t.Fatal(err)
	}
	Within(t, "LOG", up)
	if f := Within(t, "RELEASED", up); f.Kind != ipc.Released || ipc.Ticket(f.Body, 0) != 5 {
		t.Errorf("got %s, want the ticket behind the next frame", f.Kind)
	}
}

// TestSpinOutlastsYieldsThatMadeTheFrame checks when a yield ends spinning. If client, server and
// plugin share a core, the others produce each frame during one long yield, so spinning continues.
// It pauses if the frame had to wait or no frame came.
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
		"long, and the frame is from tomorrow": {80 * slowYield, true, -slowYield, false}, // only harms the server that claims it
	} {
		if got := slowed(test.yield, test.there, test.age); got != test.want {
			t.Errorf("a yield that is %s: got slow %v, want %v", name, got, test.want)
		}
	}
}
