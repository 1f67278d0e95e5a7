package engine_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// forward responds with the bytes of the input, without a copy.
func forward(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		in, err := r.Input("IN")
		if err != nil {
			return err
		}
		p, err := r.NewResponse()
		if err != nil {
			return err
		}
		if err := p.Forward("OUT", nil, in); err != nil {
			return err
		}
		if err := p.Send(sdk.SendFinal, nil); err != nil {
			return err
		}
		if err := r.Release(sdk.ReleaseAll); err != nil {
			return err
		}
	}
	return nil
}

// free is memory without a reference count.
type free struct{}

func (free) Retain()  {}
func (free) Release() {}

// processorTime returns the CPU time of this process in ns. Unlike elapsed time, it does not depend
// on the machine's load.
func processorTime(b *testing.B) int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkIdentity measures the time from Instance.Execute to the response, for a client that
// waits for it.
func BenchmarkIdentity(b *testing.B) {
	for _, c := range []struct {
		name    string
		bytes   int64
		execute func(context.Context, []*sdk.Request) error
	}{
		{"output", 4, identity}, {"forward", 4, forward}, {"forward", 1 << 20, forward}, {"forward", 16 << 20, forward}, {"output", 1 << 20, identity},
	} {
		b.Run(fmt.Sprintf("%s-%d", c.name, c.bytes), func(b *testing.B) {
			a := &author{execute: c.execute}
			r := start(b, a, with(""), func(_ *fixture, env *engine.Environment) { env.Allocate = nil })
			got := make(chan struct{}, 1)
			task := &backend.Task{Context: context.Background(), Send: func(*infer.Response) { got <- struct{}{} }, Request: &infer.Request{
				Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{c.bytes / 4}, Data: make([]byte, c.bytes), Memory: free{}}},
			}}
			batch := &backend.Batch{Tasks: []*backend.Task{task}, Done: func(*backend.Batch, backend.Report) {}}
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				r.instance.Execute(batch)
				<-got
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// countingStrategist makes batches of four.
type countingStrategist struct{ authorModel }

func (*countingStrategist) BeginBatch() func(int64) bool {
	n := 0
	return func(int64) bool { n++; return n <= 4 }
}

type countingAuthor struct{ author }

func (*countingAuthor) NewModel(*sdk.ModelEnv) (sdk.Model, error) { return &countingStrategist{}, nil }

// BenchmarkStrategy compares calls of the strategy by the scheduler with direct calls of the same
// functions. A batch of four takes five calls.
func BenchmarkStrategy(b *testing.B) {
	back, err := engine.Open(func(*sdk.BackendEnv) (sdk.Backend, error) { return &countingAuthor{}, nil }, engine.Environment{Name: "b"})
	if err != nil {
		b.Fatal(err)
	}
	defer back.Close()
	m := back.Model(engine.Version{Name: "m"})
	defer m.Close()
	if err := m.Start(b.Context(), &kserve.ModelConfig{}, nil); err != nil {
		b.Fatal(err)
	}
	s := m.Strategy()
	request := &infer.Request{Inputs: []infer.Tensor{{Data: make([]byte, 8)}}}
	for _, c := range []struct {
		name  string
		begin func() func(*infer.Request) bool
	}{
		{"asked", s.Begin},
		{"called", func() func(*infer.Request) bool {
			include := (&countingStrategist{}).BeginBatch()
			return func(*infer.Request) bool { return include(8) }
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			questions, began := 0, processorTime(b)
			for b.Loop() {
				include := c.begin()
				for range 4 {
					if !include(request) {
						b.Fatal("a request is excluded")
					}
				}
				questions += 5
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(questions), "ns/question")
			b.ReportMetric(float64(processorTime(b)-began)/float64(questions), "cpu-ns/question")
		})
	}
}
