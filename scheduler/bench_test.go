package scheduler_test

import (
	"context"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// instant is an instance that responds before Execute returns.
type instant struct{ final infer.Response }

func (*instant) Name() string                { return "instant" }
func (*instant) Ready(context.Context) error { return nil }

func (*instant) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (i *instant) Execute(b *backend.Batch) {
	b.Done(b, backend.Report{Executed: true})
	b.Tasks[0].Send(&i.final)
}

// BenchmarkInfer measures a client's request through the scheduler.
func BenchmarkInfer(b *testing.B) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}})
	d.Available(&instant{infer.Response{Final: true}})
	req, send := &infer.Request{}, func(*infer.Response) {}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Infer(context.Background(), req, send); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBLSRequest measures a BLS request through the scheduler.
func BenchmarkBLSRequest(b *testing.B) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}})
	d.Available(&instant{infer.Response{Final: true}})
	caller := infer.NewCaller("m", 1, []*infer.Request{{}}, true)
	req, send := &infer.Request{Caller: caller}, func(*infer.Response) {}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Submit(context.Background(), req, send); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBLSRequestThatWaits measures a BLS request that finds all instances busy and so checks
// for a deadlock.
func BenchmarkBLSRequestThatWaits(b *testing.B) {
	for _, c := range []struct {
		name  string
		steps []string
	}{
		{"for a client's", []string{"ask r a", "ask s b", "ask t b"}},
		{"for what waits", []string{"ask r a", "ask s b", "ask t b", "call q s c", "call p t c", "call o q d", "call n p d"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, "a1 b2 c2 d1")
			for _, step := range c.steps {
				if err := w.step(step); err != nil {
					b.Fatal(err)
				}
			}
			d, outer := w.models["b"], w.asked["r"].request
			req := &infer.Request{Caller: infer.NewCaller("a", 1, []*infer.Request{outer}, true)}
			b.ReportAllocs()
			for b.Loop() {
				r := d.Prepare(context.Background(), req, func(*infer.Response) {}, scheduler.Timing{})
				if err := r.Enter(); err != nil {
					b.Fatal(err)
				}
				r.Cancel()
			}
		})
	}
}
