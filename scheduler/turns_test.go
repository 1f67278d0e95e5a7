package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// limitedTimedInstance is a timedInstance that needs one R.
type limitedTimedInstance struct {
	timedInstance
	group *kserve.ModelInstanceGroup
}

func (p *limitedTimedInstance) Capabilities() backend.Capabilities {
	return backend.Capabilities{GroupMember: p}
}

func (p *limitedTimedInstance) Group() *kserve.ModelInstanceGroup { return p.group }
func (p *limitedTimedInstance) Device() int32                     { return 0 }

// sharing is a set of models that share one R. Each has an instance that executes for 400 ms.
type sharing struct {
	t        *testing.T
	timeline *timeline
	models   map[string]*Batcher
	counts   map[string]*Counter

	limiter *ratelimit.Limiter
}

// newSharing creates models with these configs.
func newSharing(t *testing.T, configs map[string]string) *sharing {
	s := &sharing{t: t, timeline: &timeline{begun: time.Now()}, models: map[string]*Batcher{}, counts: map[string]*Counter{}}
	l := ratelimit.New(nil)
	s.limiter = l
	group := instanceGroup(t, `rate_limiter { resources [ { name: "R" count: 1 } ] }`)
	if _, err := l.Reserve([]*kserve.ModelInstanceGroup{group}); err != nil {
		t.Fatal(err)
	}
	graph := waitgraph.New(zerolog.Nop(), waitgraph.Patience)
	for name, config := range configs {
		s.counts[name] = &Counter{}
		d := NewBatcher(BatcherConfig{Model: name, Observer: s.counts[name], Graph: graph, Batching: batching.NewRules(ParseConfig(t, config))})
		s.models[name] = d
		l.Events(d).Available(&limitedTimedInstance{timedInstance{name: name, lasts: 400 * time.Millisecond, timeline: s.timeline}, group})
	}
	return s
}

// ask sends a request to the model named by the first letter of its id.
func (s *sharing) ask(ctx context.Context, req *infer.Request) {
	req.BatchSize = 1
	err := s.models[req.ID[:1]].Submit(ctx, req, func(r *infer.Response) {
		if r.Err != nil {
			s.timeline.tell("%s: %s", req.ID, r.Err.Code)
		}
	})
	if err != nil {
		s.t.Errorf("%s: %v", req.ID, err)
	}
	synctest.Wait()
}

func (s *sharing) want(want string) {
	s.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	if got := s.timeline.String(); got != want {
		s.t.Errorf("got  %s\nwant %s", got, want)
	}
	for name, c := range s.counts {
		if n := c.Waiting.Load(); n != 0 || c.Negative.Load() {
			s.t.Errorf("at the end %d of %s are pending", n, name)
		}
	}
}

// TestBatchesFillUntilTheirTurn checks, with two models that share a resource, that requests that
// arrive during an execution join the other model's next batch.
func TestBatchesFillUntilTheirTurn(t *testing.T) {
	const batches = "max_batch_size: 4 dynamic_batching { }"
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t, map[string]string{"a": batches, "b": batches})
		for _, id := range strings.Fields("b0 a1 b1 a2 b2 a3 b3 a4 b4 a5 b5") {
			s.ask(t.Context(), &infer.Request{ID: id})
			if id == "a3" && (s.counts["a"].Waiting.Load() != 3 || s.counts["b"].Waiting.Load() != 2) {
				t.Errorf("%d and %d are pending, want 3 and 2", s.counts["a"].Waiting.Load(), s.counts["b"].Waiting.Load())
			}
			time.Sleep(45 * time.Millisecond)
		}
		s.want("0 b0; 400 a1+a2+a3+a4; 800 b1+b2+b3+b4; 1200 a5; 1600 b5")
	})
}

// TestWhoWaitsForATurn checks that requests that wait for a turn still expire, can be cancelled,
// and are ordered by priority.
func TestWhoWaitsForATurn(t *testing.T) {
	const config = "max_batch_size: 2 dynamic_batching { priority_levels: 2 default_priority_level: 2 " +
		"default_queue_policy { default_timeout_microseconds: 9000000 allow_timeout_override: true } }"
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t, map[string]string{"a": config, "b": config, "c": config})
		ctx, leave := context.WithCancel(t.Context())
		s.ask(t.Context(), &infer.Request{ID: "b0"})
		s.ask(ctx, &infer.Request{ID: "c0"}) // the next in turn
		for _, id := range []string{"a1", "a2"} {
			s.ask(t.Context(), &infer.Request{ID: id})
		}
		s.ask(t.Context(), &infer.Request{ID: "a3", TimeoutMicros: 100e3})
		s.ask(t.Context(), &infer.Request{ID: "a4", Priority: 1})
		time.Sleep(200 * time.Millisecond)
		leave()
		s.want("0 b0; 100 a3: Unavailable; 200 c0: Cancelled; 400 a4+a1; 800 a2")
	})
}

// TestCallBehindWhoWaitsForATurn sends a BLS request from a model that holds the resource to a
// model whose instance waits for its turn with a client's request. It checks that both are
// executed.
func TestCallBehindWhoWaitsForATurn(t *testing.T) {
	const single = "max_batch_size: 1 dynamic_batching { }"
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t, map[string]string{"a": single, "b": single})
		outer := &infer.Request{ID: "a1"}
		s.ask(t.Context(), outer)
		s.ask(t.Context(), &infer.Request{ID: "b1"})
		time.Sleep(100 * time.Millisecond)
		s.ask(t.Context(), &infer.Request{ID: "b2", Caller: infer.NewCaller("a", 1, []*infer.Request{outer}, true)})
		s.want("0 a1; 100 b1; 500 b2")
	})
}

// TestInstanceIsLostBeforeItsTurn checks that a request whose instance is lost or retired before
// its turn goes to another instance.
func TestInstanceIsLostBeforeItsTurn(t *testing.T) {
	for _, how := range []string{"lost", "retired"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSharing(t, map[string]string{"a": "max_batch_size: 1", "b": "max_batch_size: 1"})
				b := s.models["b"]
				first := b.idle[0].Instance().Capabilities().TurnTaker
				s.ask(t.Context(), &infer.Request{ID: "a1"})
				s.ask(t.Context(), &infer.Request{ID: "b1"})
				spare := &limitedTimedInstance{timedInstance{name: "spare", lasts: time.Second, timeline: s.timeline}, first.Capabilities().Wrapped.(*limitedTimedInstance).group}
				s.limiter.Events(b).Available(spare)
				if how == "lost" {
					b.Lost(first, false)
				} else {
					b.Retire(first, func() { s.timeline.tell("drained") })
				}
				want := "0 a1; 400 b1"
				if how == "retired" {
					want = "0 a1; 0 drained; 400 b1"
				}
				s.want(want)
			})
		})
	}
}

// TestLimiterGivesBatchersTurns checks, with two models that share a resource, that requests whose
// clients leave before their turn are cancelled, and that a lost instance's batch goes to another
// instance.
func TestLimiterGivesBatchersTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New(nil)
		one := instanceGroup(t, `rate_limiter { resources [ { name: "R" count: 1 } ] }`)
		if _, err := l.Reserve([]*kserve.ModelInstanceGroup{one}); err != nil {
			t.Fatal(err)
		}
		var counts [2]Counter
		var models [2]*Batcher
		var instances [2]*limitedInstance
		var events [2]*ratelimit.Events
		for i := range models {
			models[i] = NewBatcher(BatcherConfig{Observer: &counts[i]})
			instances[i] = &limitedInstance{Instance: backendtest.NewInstance(string('a'+rune(i)), time.Second), group: one}
			events[i] = l.Events(models[i])
			events[i].Available(instances[i])
		}
		outcomes := make(map[string]string)
		var mu sync.Mutex
		send := func(ctx context.Context, i int, id string) {
			err := models[i].Submit(ctx, &infer.Request{ID: id}, func(r *infer.Response) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[id] = "answered"
				if r.Err != nil {
					outcomes[id] = r.Err.Code.String()
				}
			})
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		send(t.Context(), 0, "a1")
		send(gone, 1, "b1") // staged
		send(gone, 1, "b2") // queued
		send(t.Context(), 1, "b3")
		leave()
		synctest.Wait()
		mu.Lock()
		if outcomes["b1"] != infer.Cancelled.String() || outcomes["b2"] != infer.Cancelled.String() || outcomes["b3"] != "" {
			t.Errorf("when a client has left: %v", outcomes)
		}
		mu.Unlock()
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got := fmt.Sprint(instances[0].Executed(), instances[1].Executed()); got != "[a1] [b3]" {
			t.Errorf("executed are %s", got)
		}

		// A lost instance gives its staged batch back, and another one takes it.
		send(t.Context(), 0, "a2") // staged behind b3
		events[0].Lost(instances[0], false)
		synctest.Wait()
		if n := counts[0].Waiting.Load(); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		spare := &limitedInstance{Instance: backendtest.NewInstance("c", time.Second), group: one}
		events[0].Available(spare)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := fmt.Sprint(instances[0].Executed(), spare.Executed()); got != "[a1] [a2]" {
			t.Errorf("executed are %s", got)
		}
		if u := l.Usage(); u != (ratelimit.Usage{}) {
			t.Errorf("left are %+v", u)
		}
	})
}

// limitedInstance is an instance with a group.
type limitedInstance struct {
	*backendtest.Instance
	group *kserve.ModelInstanceGroup
}

func (p *limitedInstance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: p, GroupMember: p}
}

func (p *limitedInstance) Group() *kserve.ModelInstanceGroup { return p.group }
func (p *limitedInstance) Device() int32                     { return 0 }

// instanceGroup parses a group in the text form of a config.
func instanceGroup(t testing.TB, text string) *kserve.ModelInstanceGroup {
	t.Helper()
	g := &kserve.ModelInstanceGroup{}
	if err := prototext.Unmarshal([]byte(text), g); err != nil {
		t.Fatal(err)
	}
	return g
}
