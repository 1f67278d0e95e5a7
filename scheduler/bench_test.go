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
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}})
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
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}})
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
