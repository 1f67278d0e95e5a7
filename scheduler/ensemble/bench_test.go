package ensemble_test

import (
	"context"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ensemble"
)

// prompt is an instance that responds inside Execute.
type prompt struct{}

func (prompt) Name() string                { return "prompt" }
func (prompt) Ready(context.Context) error { return nil }

func (prompt) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (prompt) Execute(b *backend.Batch) {
	task, out := b.Tasks[0], b.Tasks[0].Request.Inputs[0]
	out.Name = "OUT"
	b.Done(b, backend.Report{Executed: true})
	task.Send(&infer.Response{Outputs: []infer.Tensor{out}, Final: true})
}

// straight is a model whose requests go directly to a batcher.
type straight struct{ *scheduler.Batcher }

func (d straight) Hold(string, int64) (ensemble.Composed, error) { return d, nil }
func (straight) Batches() bool                                   { return false }
func (straight) Dims(string) []int64                             { return nil }
func (straight) TakesDevices() bool                              { return false }
func (straight) Release()                                        {}

func (d straight) Submit(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	return d.Begin(ctx, req, send)
}

// BenchmarkEnsemble measures an ensemble of three steps. "three requests" is the cost of its models
// alone.
func BenchmarkEnsemble(b *testing.B) {
	model := scheduler.NewBatcher(scheduler.BatcherConfig{Model: "m", Observer: &ensemble.CountingObserver{}})
	model.Available(prompt{})
	config := ensemble.ParseEnsemble("A", "B", "m(IN=A)->OUT=X", "m(IN=X)->OUT=Y", "m(IN=Y)->OUT=B")
	config.Composer, config.Observer = straight{model}, &ensemble.CountingObserver{}
	e := ensemble.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request := func(name string) *infer.Request {
		return &infer.Request{Inputs: []infer.Tensor{{Name: name, DataType: infer.Uint8, Shape: []int64{4}, Data: []byte("1234")}}}
	}
	b.Run("three requests", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range 3 {
				_ = model.Infer(ctx, request("IN"), func(*infer.Response) {})
			}
		}
	})
	b.Run("three steps", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = e.Infer(ctx, request("A"), func(*infer.Response) {})
		}
	})
}
