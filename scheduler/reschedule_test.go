package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/rs/zerolog"
)

// rounds is a scheduler of an iterative model with one instance.
type rounds struct {
	*Batcher
	counter
	in      *heldInstance
	log     strings.Builder
	answers map[string]string
}

func newRounds(iterative bool) *rounds {
	s := &rounds{in: &heldInstance{fakeInstance: fakeInstance{name: "m_0"}}, answers: map[string]string{}}
	s.Batcher = NewBatcher(BatcherConfig{Model: "m", Observer: &s.counter, Iterative: iterative, Log: zerolog.New(&s.log)})
	s.Up(s.in)
	return s
}

func (s *rounds) send(ctx context.Context, req *infer.Request) error {
	return s.Submit(ctx, req, func(r *infer.Response) {
		s.answers[req.ID] += fmt.Sprintf("final=%v error=%v;", r.Final, r.Err)
	})
}

// round ends the first execution; if answer is false, its request is released to
// come again.
func (s *rounds) round(answer bool) string {
	b := s.in.batches[0]
	s.in.batches = s.in.batches[1:]
	if answer {
		b.Done(b, backend.Report{Executed: true})
		b.Tasks[0].Send(&infer.Response{Final: true})
	} else {
		b.Done(b, backend.Report{Executed: true, Rescheduled: b.Tasks})
	}
	return b.Tasks[0].Request.ID
}

// TestReschedule has three requests of three rounds each share an instance.
func TestReschedule(t *testing.T) {
	s := newRounds(true)
	// One without a correlation id becomes a sequence of its own.
	r, other := &infer.Request{ID: "r", Flags: infer.SequenceEnd}, &infer.Request{ID: "s"}
	third := &infer.Request{ID: "t", Correlation: infer.CorrelationID{Text: "mine"}, Flags: infer.SequenceStart}
	for _, req := range []*infer.Request{r, other, third} {
		if err := s.send(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if r.Correlation.Number != 1 || r.Flags != infer.SequenceStart || other.Correlation.Number != 2 || third.Correlation.Text != "mine" {
		t.Errorf("sequences: got %+v flags %d, %+v, %+v", r.Correlation, r.Flags, other.Correlation, third.Correlation)
	}
	var order []string
	for range 2 { // each of the three, twice
		for range 3 {
			order = append(order, s.round(false))
		}
	}
	if r.Flags != 0 || third.Flags != 0 || r.Correlation.Number != 1 {
		t.Errorf("in later rounds: flags %d and %d, id %d, want 0, 0 and 1", r.Flags, third.Flags, r.Correlation.Number)
	}
	for range 3 {
		order = append(order, s.round(true))
	}
	if got := strings.Join(order, " "); got != "r s t r s t r s t" {
		t.Errorf("executed were %s, want them in turn", got)
	}
	if s.executed.Load() != 9 || s.failed.Load() != 0 || s.pending.Load() != 0 || s.InFlight() != 0 {
		t.Errorf("%d executed, %d failed, %d pending, %d in flight, want 9, 0, 0, 0", s.executed.Load(), s.failed.Load(), s.pending.Load(), s.InFlight())
	}
	for id, got := range s.answers {
		if got != "final=true error=<nil>;" {
			t.Errorf("request %s: %s", id, got)
		}
	}
}

// TestRescheduleRefused is a table of what cannot come again; its client gets an
// error, and the instance serves on.
func TestRescheduleRefused(t *testing.T) {
	const start = "inference request for sequence %s to model 'm' must specify the START flag on the first request of the sequence"
	for _, c := range []struct {
		name      string
		iterative bool
		request   infer.Request
		want      string
	}{
		{"not configured", false, infer.Request{},
			"Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag."},
		{"with END", true, infer.Request{Correlation: infer.CorrelationID{Number: 7}, Flags: infer.SequenceStart | infer.SequenceEnd},
			fmt.Sprintf(start, "7")},
		{"with END, a text", true, infer.Request{Correlation: infer.CorrelationID{Text: "x"}, Flags: infer.SequenceStart | infer.SequenceEnd},
			fmt.Sprintf(start, "x")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newRounds(c.iterative)
			if err := s.send(t.Context(), &c.request); err != nil {
				t.Fatal(err)
			}
			if err := s.send(t.Context(), &infer.Request{ID: "next"}); err != nil {
				t.Fatal(err)
			}
			s.round(false)
			if got := s.answers[""]; got != "final=true error="+c.want+";" {
				t.Errorf("the client got %s, want %s", got, c.want)
			}
			if want := `{"level":"error","message":"Failed to release request: ` + c.want; !strings.HasPrefix(s.log.String(), want) {
				t.Errorf("the log has %s, want %s", s.log.String(), want)
			}
			if s.round(true) != "next" || s.answers["next"] != "final=true error=<nil>;" {
				t.Errorf("the next request: %s", s.answers["next"])
			}
			if s.executed.Load() != 2 || s.failed.Load() != 1 || s.InFlight() != 0 {
				t.Errorf("%d executed, %d failed, %d in flight, want 2, 1, 0", s.executed.Load(), s.failed.Load(), s.InFlight())
			}
		})
	}
}

// TestIterativeAdmission is a table of what an iterative model refuses at once.
func TestIterativeAdmission(t *testing.T) {
	s := newRounds(true)
	for _, c := range []struct {
		request infer.Request
		want    string
	}{
		{infer.Request{BatchSize: 2}, "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"},
		{infer.Request{Correlation: infer.CorrelationID{Number: 3}, Flags: infer.SequenceEnd},
			"inference request for sequence 3 to model 'm' must specify the START flag on the first request of the sequence"},
	} {
		if err := s.send(t.Context(), &c.request); err == nil || err.Error() != c.want || infer.AsError(err).Code != infer.InvalidArg {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if s.InFlight() != 0 || len(s.in.batches) != 0 {
		t.Errorf("%d in flight", s.InFlight())
	}
}

// TestRescheduleForNobody ends the context of a request in its first round, and
// loses the instance for good in that of another.
func TestRescheduleForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRounds(true)
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.send(ctx, &infer.Request{ID: "gone"}); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		s.round(false)
		if got := s.answers["gone"]; got != "final=true error=;" {
			t.Errorf("a request whose client has gone: %s, want Cancelled", got)
		}
		if err := s.send(t.Context(), &infer.Request{ID: "lost"}); err != nil {
			t.Fatal(err)
		}
		s.Down(s.in, true)
		s.round(false)
		if got := s.answers["lost"]; got != "final=true error=Stub process 'm_0' is not healthy.;" {
			t.Errorf("a request whose instance is lost: %s", got)
		}
		if s.failed.Load() != 2 || s.InFlight() != 0 {
			t.Errorf("%d failed, %d in flight, want 2 and 0", s.failed.Load(), s.InFlight())
		}
	})
}

// TestRescheduleEndsWhatItWaitedFor: a call that is still open when its caller is
// released does not hold the caller's next execution.
func TestRescheduleEndsWhatItWaitedFor(t *testing.T) {
	w := newWorld(t, "a1 b1")
	w.models["a"].config.Iterative = true
	for _, step := range []string{"ask s b", "ask r a", "call q r b", "again r", "runs r", "call p s a", "waits p"} {
		if err := w.step(step); err != nil {
			t.Fatalf("step %q: %v", step, err)
		}
	}
	w.finish()
}
