package scheduler_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// instantBatches is an instant that takes batches of any size.
type instantBatches struct{ instant }

func (i *instantBatches) Execute(b *backend.Batch) {
	b.Done(b, backend.Report{Executed: true})
	for _, task := range b.Tasks {
		task.Send(&i.final)
	}
}

// clients64 runs b.N requests from 64 goroutines.
func clients64(b *testing.B, infer func(client, i int)) {
	var next, client atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan struct{})
	for range 64 {
		go func() {
			defer func() { done <- struct{}{} }()
			c := int(client.Add(1))
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				infer(c, i)
			}
		}()
	}
	for range 64 {
		<-done
	}
}

// BenchmarkClients measures the cost of a request in the scheduler with 64 clients that use all
// loaded models in turn.
func BenchmarkClients(b *testing.B) {
	for _, kind := range []string{"default", "dynamic", "dynamic, all rules"} {
		for _, models := range []int{1, 10, 1000} {
			b.Run(fmt.Sprintf("%s/models=%d", kind, models), func(b *testing.B) {
				graph := waitgraph.New(zerolog.Nop(), waitgraph.Patience)
				list := make([]*scheduler.Batcher, models)
				for i := range list {
					var rules *batching.Rules
					switch kind {
					case "dynamic":
						rules = &batching.Rules{MaxSize: 8}
					case "dynamic, all rules":
						rules = &batching.Rules{
							MaxSize: 8, Preferred: []int64{4, 8}, PreserveOrder: true, Strategy: bytesAtMost(1 << 20),
							Alike: batching.NewAlike(parseConfig(b, `input { name: "A" dims: -1 optional: true }`)),
						}
					}
					list[i] = scheduler.NewBatcher(scheduler.BatcherConfig{Model: fmt.Sprint(i), Observer: &counter{}, Graph: graph, Batching: rules})
					list[i].Available(&instantBatches{instant{infer.Response{Final: true}}})
				}
				req := &infer.Request{BatchSize: 1, Inputs: []infer.Tensor{{Name: "A", Shape: []int64{1, 4}, Data: make([]byte, 16)}}}
				send := func(*infer.Response) {}
				clients64(b, func(_, i int) {
					if err := list[i%models].Infer(context.Background(), req, send); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// slowBatches takes 2 ms per batch of any size.
type slowBatches struct {
	instant
	batches atomic.Int64
}

const slowBatch = 2 * time.Millisecond

func (s *slowBatches) Execute(b *backend.Batch) {
	s.batches.Add(1)
	time.AfterFunc(slowBatch, func() {
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			task.Send(&infer.Response{Final: true})
		}
	})
}

// BenchmarkDynamic2ms measures 64 clients that share an instance that takes 2 ms per batch. In the
// ideal case, every batch has the largest size and begins when the previous one ends.
func BenchmarkDynamic2ms(b *testing.B) {
	for _, c := range []struct {
		name     string
		batching batching.Rules
	}{
		{"max=16", batching.Rules{MaxSize: 16}},
		{"max=32", batching.Rules{MaxSize: 32}},
		{"max=64", batching.Rules{MaxSize: 64}},
		{"max=64,delay=500us", batching.Rules{MaxSize: 64, MaxDelay: 500 * time.Microsecond}},
	} {
		b.Run(c.name, func(b *testing.B) {
			in := &slowBatches{}
			d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Batching: &c.batching})
			d.Available(in)
			req, send := &infer.Request{BatchSize: 1}, func(*infer.Response) {}
			begun := time.Now()
			clients64(b, func(int, int) {
				if err := d.Infer(context.Background(), req, send); err != nil {
					b.Error(err)
				}
			})
			ideal := float64(b.N) / float64(c.batching.MaxSize) * slowBatch.Seconds()
			b.ReportMetric(100*ideal/time.Since(begun).Seconds(), "%ideal")
			b.ReportMetric(float64(b.N)/float64(in.batches.Load()), "requests/batch")
		})
	}
}
