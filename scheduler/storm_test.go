package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// calling is an instance whose model calls other models before it responds, some calls
// concurrently. A rejected call does not fail it.
type calling struct {
	name   string
	calls  func(depth int) [][]string // names of models: groups of concurrent calls, one group after another
	models map[string]*scheduler.Batcher
	refuse *atomic.Int64 // counts rejections
	asked  chan *backend.Batch
}

func (c *calling) Name() string                { return c.name }
func (c *calling) Ready(context.Context) error { return nil }
func (c *calling) Execute(b *backend.Batch)    { c.asked <- b }

func (*calling) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (c *calling) run(t *testing.T) {
	for b := range c.asked {
		var requests []*infer.Request
		depth := 0
		for _, task := range b.Tasks {
			requests = append(requests, task.Request)
			depth = max(depth, task.Request.Depth())
		}
		for _, together := range c.calls(depth) {
			var wg sync.WaitGroup
			for _, model := range together {
				req := &infer.Request{Model: model, Caller: infer.NewCaller(c.name, 1, requests, true)}
				wg.Add(1)
				err := c.models[model].Submit(t.Context(), req, func(r *infer.Response) {
					if r.Err != nil {
						c.refuse.Add(1)
					}
					if r.Final {
						wg.Done()
					}
				})
				if err != nil {
					if !strings.Contains(err.Error(), "every instance of it waits for this call") {
						t.Errorf("a call of %s: %v", model, err)
					}
					c.refuse.Add(1)
					wg.Done()
				}
			}
			wg.Wait()
		}
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			task.Send(&infer.Response{Final: true})
		}
	}
}

// TestCyclesNeverWaitForEver sends requests to models that keep calling each other. It checks that
// no request waits forever, and that no call is rejected if cycles are impossible.
func TestCyclesNeverWaitForEver(t *testing.T) {
	for i := range 4 {
		cyclic, batches := i%2 == 0, i >= 2
		t.Run(fmt.Sprintf("cyclic=%v,batches=%v", cyclic, batches), func(t *testing.T) {
			var rules *batching.Rules
			if batches {
				rules = &batching.Rules{MaxSize: 3}
			}
			graph := waitgraph.New(zerolog.Nop(), waitgraph.Patience)
			names := []string{"a", "b", "c", "d"}
			models := map[string]*scheduler.Batcher{}
			var refused atomic.Int64
			var running sync.WaitGroup
			var instances []*calling
			for i, name := range names {
				d := scheduler.NewBatcher(scheduler.BatcherConfig{Model: name, Observer: &counter{}, Graph: graph, Batching: rules})
				models[name] = d
				for n := range 1 + i%3 {
					random := rand.New(rand.NewPCG(uint64(i), uint64(n)))
					in := &calling{name: name, models: models, refuse: &refused, asked: make(chan *backend.Batch, 1)}
					in.calls = func(depth int) (list [][]string) {
						if random.IntN(2) == 0 || depth > 8 {
							return nil
						}
						for range 1 + random.IntN(2) {
							var together []string
							for range 1 + random.IntN(3) {
								if cyclic {
									together = append(together, names[random.IntN(len(names))])
								} else if i+1 < len(names) {
									together = append(together, names[i+1+random.IntN(len(names)-i-1)])
								}
							}
							list = append(list, together)
						}
						return list
					}
					instances = append(instances, in)
					running.Go(func() { in.run(t) })
					d.Available(in)
				}
			}
			const clients, each = 12, 150
			var left atomic.Int64
			left.Store(clients)
			for c := range clients {
				go func() {
					defer left.Add(-1)
					for i := range each {
						d := models[names[(c+i)%len(names)]]
						if err := d.Infer(t.Context(), &infer.Request{ID: fmt.Sprint(c, i)}, func(*infer.Response) {}); err != nil {
							t.Errorf("a client's request: %v", err)
						}
					}
				}()
			}
			testkit.Eventually(t, 5*time.Minute, func() bool { return left.Load() == 0 })
			for _, in := range instances {
				close(in.asked)
			}
			running.Wait()
			if n := graph.Open(); n != 0 {
				t.Errorf("%d requests have open BLS requests at the end", n)
			}
			if n := refused.Load(); cyclic != (n > 0) {
				t.Errorf("%d calls were refused", n)
			}
			t.Logf("%d calls were refused", refused.Load())
		})
	}
}
