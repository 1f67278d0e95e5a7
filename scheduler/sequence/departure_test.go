package sequence_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// quiet is a context that ends without notifying anyone, as if the goroutine that watches it had
// not run yet.
type quiet struct {
	context.Context
	ended atomic.Bool
}

// Err implements context.Context.
func (c *quiet) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// TestSequenceDrainsOnce checks that a retired instance is drained once if its last request turns
// out to be cancelled when its turn comes.
func TestSequenceDrainsOnce(t *testing.T) {
	bothStrategies(t, func(t *testing.T, c sequence.Config) {
		s, a, drained, text := sequence.New(c), &taker{name: "a"}, 0, ""
		s.Available(a)
		sendTo(t, s, infer.SequenceStart, &text)
		b := a.take(t)
		client := &quiet{Context: context.Background()}
		next := &infer.Request{BatchSize: 1, Correlation: infer.CorrelationID{Number: 7}}
		if err := s.Submit(client, next, func(r *infer.Response) { text = r.Err.Code.String() }); err != nil {
			t.Fatal(err)
		}
		s.Retire(a, func() { drained++ })
		client.ended.Store(true)
		b.Done(b, backend.Report{Executed: true})
		b.Tasks[0].Send(&infer.Response{Final: true})
		if drained != 1 || text != "Cancelled" {
			t.Errorf("drained was called %d times and the request was answered with %q, want once and Cancelled", drained, text)
		}
	})
}

// TestSequenceTellsOfUnansweredRequests retires an instance whose execution has not returned. It
// checks that Retire reports true only if both the sequence and the response have ended.
func TestSequenceTellsOfUnansweredRequests(t *testing.T) {
	for _, test := range []struct {
		flags                uint32
		answered, wantRetire bool
	}{
		{infer.SequenceStart, true, false},
		{infer.SequenceStart | infer.SequenceEnd, false, false},
		{infer.SequenceStart | infer.SequenceEnd, true, true},
	} {
		bothStrategies(t, func(t *testing.T, c sequence.Config) {
			s, a, text := sequence.New(c), &taker{name: "a"}, ""
			s.Available(a)
			sendTo(t, s, test.flags, &text)
			b := a.take(t)
			if test.answered {
				b.Tasks[0].Send(&infer.Response{Final: true})
			}
			if got := s.Retire(a, func() {}); got != test.wantRetire {
				t.Errorf("flags %d, answered %v: Retire returned %v", test.flags, test.answered, got)
			}
			b.Done(b, backend.Report{Executed: true})
			if !test.answered {
				b.Tasks[0].Send(&infer.Response{Final: true})
			}
		})
	}
}

// hesitant is an instance that has a batch only when Execute returns. Cancel ignores batches that
// it does not have yet.
type hesitant struct {
	before func()

	mu   sync.Mutex
	has  []*backend.Batch
	told []string // ids of the cancelled requests
}

func (*hesitant) Name() string                { return "hesitant" }
func (*hesitant) Ready(context.Context) error { return nil }

func (h *hesitant) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: h, GroupMember: h}
}

// Execute implements backend.Instance.
func (h *hesitant) Execute(b *backend.Batch) {
	if h.before != nil {
		h.before()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.has = append(h.has, b)
}

// Cancel implements backend.Canceller.
func (h *hesitant) Cancel(task *backend.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.has {
		if slices.Contains(b.Tasks, task) {
			h.told = append(h.told, task.Request.ID)
		}
	}
}

// Device and Group implement backend.GroupMember. The instance needs one R.
func (*hesitant) Device() int32                     { return 0 }
func (*hesitant) Group() *kserve.ModelInstanceGroup { return (*taker)(nil).Group() }

// end sends the responses of the first batch.
func (h *hesitant) end() {
	h.mu.Lock()
	b := h.has[0]
	h.has = h.has[1:]
	h.mu.Unlock()
	b.Done(b, backend.Report{Executed: true})
	for _, task := range b.Tasks {
		task.Send(&infer.Response{Final: true})
	}
}

// TestCancellationDuringHandoverReachesTheModel checks that the model gets the cancellation of a
// client that leaves after its request has left the queue but before the instance has it.
func TestCancellationDuringHandoverReachesTheModel(t *testing.T) {
	newSequences := func(b *kserve.ModelSequenceBatching) scheduler.Scheduler {
		b.MaxSequenceIdleMicroseconds = 3600e6
		return sequence.New(sequence.Config{Model: "m", Observer: uncounted{}, Batching: b})
	}
	for name, make := range map[string]func() scheduler.Scheduler{
		"batcher": func() scheduler.Scheduler {
			return scheduler.NewBatcher(scheduler.BatcherConfig{Observer: uncounted{}})
		},
		"direct": func() scheduler.Scheduler { return newSequences(&kserve.ModelSequenceBatching{}) },
		"oldest": func() scheduler.Scheduler {
			return newSequences(&kserve.ModelSequenceBatching{StrategyChoice: &kserve.ModelSequenceBatching_Oldest{
				Oldest: &kserve.ModelSequenceBatching_StrategyOldest{MaxCandidateSequences: 4},
			}})
		},
	} {
		for _, limited := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, limited: %v", name, limited), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, in := make(), &hesitant{}
					if limited {
						l := ratelimit.New(nil)
						if _, err := l.Reserve([]*kserve.ModelInstanceGroup{in.Group()}); err != nil {
							t.Fatal(err)
						}
						l.Events(s).Available(in)
					} else {
						s.Available(in)
					}
					var wg sync.WaitGroup
					defer wg.Wait()
					ask := func(ctx context.Context, id string, flags uint32) {
						wg.Go(func() {
							req := &infer.Request{ID: id, BatchSize: 1, Flags: flags, Correlation: infer.CorrelationID{Number: 7}}
							if err := s.Infer(ctx, req, func(*infer.Response) {}); err != nil {
								t.Error(err)
							}
						})
						synctest.Wait()
					}
					ask(t.Context(), "a", infer.SequenceStart)
					ctx, leave := context.WithCancel(t.Context())
					ask(ctx, "b", infer.SequenceEnd)
					in.before = func() {
						leave()
						synctest.Wait() // until the cancellation is noticed
					}
					in.end()
					if !slices.Contains(in.told, "b") {
						t.Errorf("the model was told of %s, want b", in.told)
					}
					in.end()
				})
			})
		}
	}
}

// TestCancellationAsATurnComesReachesTheModel checks the same for a batch that has waited for
// resources.
func TestCancellationAsATurnComesReachesTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New([]ratelimit.Resource{{Name: "R", Count: 1, Device: ratelimit.AnyDevice}})
		ctx, leave := context.WithCancel(t.Context())
		before, in := &hesitant{}, &hesitant{}
		for _, h := range []*hesitant{before, in} {
			share, err := l.Reserve([]*kserve.ModelInstanceGroup{h.Group()})
			if err != nil {
				t.Fatal(err)
			}
			defer share.Release()
			d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: uncounted{}})
			l.Events(d).Available(h)
			if err := d.Submit(ctx, &infer.Request{ID: "a"}, func(*infer.Response) {}); err != nil {
				t.Fatal(err)
			}
		}
		if len(in.has) > 0 {
			t.Fatal("it did not wait for its turn")
		}
		in.before = func() {
			leave()
			synctest.Wait()
		}
		before.end()
		if len(in.told) == 0 {
			t.Error("the model was not told")
		}
		in.end()
	})
}

// TestReturnedRequestsOfDisconnectedClientsAreCancelled checks that a request whose instance is
// lost before it takes the batch is cancelled, instead of waiting for another instance, if its
// client has left.
func TestReturnedRequestsOfDisconnectedClientsAreCancelled(t *testing.T) {
	bothStrategies(t, func(t *testing.T, c sequence.Config) {
		s, a, answer := sequence.New(c), &taker{name: "a"}, "nothing"
		s.Available(a)
		ctx, leave := context.WithCancel(t.Context())
		req := &infer.Request{BatchSize: 1, Flags: infer.SequenceStart, Correlation: infer.CorrelationID{Number: 7}}
		if err := s.Submit(ctx, req, func(r *infer.Response) { answer = r.Err.Code.String() }); err != nil {
			t.Fatal(err)
		}
		b := a.take(t)
		leave()
		synctest.Wait()
		b.Done(b, backend.Report{Refused: true})
		s.Lost(a, false)
		if answer != "Cancelled" || s.InFlight() != 0 || len(s.Known()) != 0 {
			t.Errorf("the answer is %s, %d are inside, %d sequences are known; want Cancelled and none", answer, s.InFlight(), len(s.Known()))
		}
	})
}
