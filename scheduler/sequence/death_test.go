package sequence_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// taker is an instance that keeps its batches.
type taker struct {
	name string
	got  []*backend.Batch
	dead bool
}

func (s *taker) Name() string                { return s.name }
func (s *taker) Ready(context.Context) error { return nil }
func (s *taker) Execute(b *backend.Batch) {
	if s.dead {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	s.got = append(s.got, b)
}

// take returns the only batch of the instance.
func (s *taker) take(t *testing.T) *backend.Batch {
	t.Helper()
	if len(s.got) != 1 {
		t.Fatalf("instance %s was given %d batches, want 1", s.name, len(s.got))
	}
	b := s.got[0]
	s.got = nil
	return b
}

func (s *taker) Capabilities() backend.Capabilities {
	return backend.Capabilities{GroupMember: s}
}

// Device and Group implement backend.GroupMember.
func (*taker) Device() int32 { return 0 }
func (*taker) Group() *kserve.ModelInstanceGroup {
	return &kserve.ModelInstanceGroup{RateLimiter: &kserve.ModelRateLimiter{Resources: []*kserve.ModelRateLimiter_Resource{{Name: "R", Count: 1}}}}
}

// holding is an instance that has a batch from the beginning.
type holding struct{ taker }

// Available implements backend.Events.
func (h *holding) Available(in backend.Instance) {
	in.Execute(&backend.Batch{
		Tasks: []*backend.Task{{Context: context.Background(), Request: &infer.Request{}}},
		Done:  func(*backend.Batch, backend.Report) {},
	})
}

// Lost implements backend.Events.
func (h *holding) Lost(backend.Instance, bool) {}

type uncounted struct{}

func (uncounted) Pending(int)                    {}
func (uncounted) Executed(*scheduler.Execution)  {}
func (uncounted) Failed(scheduler.Reason, int64) {}

// bothStrategies runs a test with direct and with Oldest.
func bothStrategies(t *testing.T, story func(t *testing.T, c sequence.Config)) {
	for name, batching := range map[string]*kserve.ModelSequenceBatching{
		"direct": {MaxSequenceIdleMicroseconds: 3600e6},
		"oldest": {MaxSequenceIdleMicroseconds: 3600e6, StrategyChoice: &kserve.ModelSequenceBatching_Oldest{
			Oldest: &kserve.ModelSequenceBatching_StrategyOldest{MaxCandidateSequences: 4},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				story(t, sequence.Config{Model: "m", Observer: uncounted{}, Batching: batching})
			})
		})
	}
}

// sendTo submits one request of sequence 7. The text of an error response goes to text.
func sendTo(t *testing.T, s *sequence.Batcher, flags uint32, text *string) {
	t.Helper()
	err := s.Submit(context.Background(), &infer.Request{BatchSize: 1, Flags: flags, Correlation: infer.CorrelationID{Number: 7}}, func(r *infer.Response) {
		if r.Err != nil {
			*text = r.Err.Error()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSequenceOutlivesItsAnswer checks that the sequence continues if the model's process dies
// after the last response but before its execution returns.
func TestSequenceOutlivesItsAnswer(t *testing.T) {
	bothStrategies(t, func(t *testing.T, c sequence.Config) {
		for _, states := range [][]sequence.State{nil, {{Input: "S", Output: "S", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}} {
			c.Decoupled, c.States = true, states
			s, a, text := sequence.New(c), &taker{name: "a"}, ""
			s.Available(a)
			sendTo(t, s, infer.SequenceStart, &text)
			b := a.take(t)
			b.Tasks[0].Send(&infer.Response{Final: true})
			next := infer.SequenceStart
			if states != nil {
				next = 0
			}
			sendTo(t, s, next, &text) // while execute is still running
			s.Lost(a, false)
			b.Done(b, backend.Report{Executed: true, Err: &infer.Error{Message: "lost"}})
			s.Available(a)
			a.take(t)
		}
	})
}

// TestSequenceNotBegunMovesOn checks that a START that waits for its turn on an instance moves to
// another instance if that one is lost.
func TestSequenceNotBegunMovesOn(t *testing.T) {
	bothStrategies(t, func(t *testing.T, c sequence.Config) {
		l, text := ratelimit.New(nil), ""
		s := sequence.New(c)
		e := l.Events(s)
		a, b := &taker{name: "a"}, &taker{name: "b"}
		holds := &holding{taker: taker{name: "c"}}
		if _, err := l.Reserve([]*kserve.ModelInstanceGroup{a.Group()}); err != nil {
			t.Fatal(err)
		}
		l.Events(holds).Available(&holds.taker)
		e.Available(a)
		e.Available(b)
		sendTo(t, s, infer.SequenceStart, &text)
		sendTo(t, s, 0, &text)
		a.dead = true
		e.Lost(a, false)
		held := holds.take(t)
		held.Done(held, backend.Report{Executed: true})
		b.take(t)
		if text != "" {
			t.Errorf("a request was answered with %q", text)
		}
	})
}

// TestLongestTimesAreNotInThePast checks that the longest times in a config do not overflow.
func TestLongestTimesAreNotInThePast(t *testing.T) {
	for _, micros := range []uint64{math.MaxInt64 / 1000, math.MaxInt64, math.MaxUint64} {
		synctest.Test(t, func(t *testing.T) {
			idle := sequence.New(sequence.Config{Model: "m", Observer: uncounted{}, Batching: &kserve.ModelSequenceBatching{MaxSequenceIdleMicroseconds: micros}})
			text := ""
			idle.Available(&taker{name: "a"})
			sendTo(t, idle, infer.SequenceStart, &text)
			time.Sleep(24 * time.Hour)
			sendTo(t, idle, 0, &text) // the sequence still exists

			a := &taker{name: "a"}
			waits := sequence.New(sequence.Config{Model: "m", MaxBatch: 4, Observer: uncounted{}, Batching: &kserve.ModelSequenceBatching{
				MaxSequenceIdleMicroseconds: 3600e6,
				StrategyChoice: &kserve.ModelSequenceBatching_Oldest{Oldest: &kserve.ModelSequenceBatching_StrategyOldest{
					MaxCandidateSequences: 4, PreferredBatchSize: []int32{4}, MaxQueueDelayMicroseconds: micros,
				}},
			}})
			waits.Available(a)
			sendTo(t, waits, infer.SequenceStart, &text)
			if len(a.got) > 0 {
				t.Errorf("a delay of %d us has passed at once", micros)
			}
		})
	}
}

// TestSequenceStopsAtOnce checks that after Stop an idle sequence gives its slot to one in the
// backlog at once, because it gets no more requests.
func TestSequenceStopsAtOnce(t *testing.T) {
	bothStrategies(t, func(t *testing.T, c sequence.Config) {
		if oldest := c.Batching.GetOldest(); oldest != nil {
			oldest.MaxCandidateSequences = 1
		}
		s, a := sequence.New(c), &taker{name: "a"}
		s.Available(a)
		answered := 0
		send := func(id uint64) {
			r := &infer.Request{BatchSize: 1, Flags: infer.SequenceStart, Correlation: infer.CorrelationID{Number: id}}
			if err := s.Submit(context.Background(), r, func(*infer.Response) { answered++ }); err != nil {
				t.Fatal(err)
			}
		}
		answer := func() {
			b := a.take(t)
			b.Done(b, backend.Report{Executed: true})
			b.Tasks[0].Send(&infer.Response{Final: true})
		}
		send(1)
		answer()
		send(2)
		send(3)
		stopped, began := make(chan error, 1), time.Now()
		go func() { stopped <- s.Stop(context.Background()) }()
		for range 2 {
			synctest.Wait()
			time.Sleep(time.Millisecond)
			synctest.Wait()
			answer()
		}
		if err := <-stopped; err != nil || answered != 3 {
			t.Errorf("stopped with %v, %d of 3 requests answered", err, answered)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
