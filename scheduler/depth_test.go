package scheduler_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

func TestDepthOfCallsIsBounded(t *testing.T) {
	req := &infer.Request{Model: "m0"}
	for i := 1; i <= waitgraph.MaxDepth; i++ {
		req = &infer.Request{Model: fmt.Sprint("m", i), Caller: infer.NewCaller(req.Model, 1, []*infer.Request{req}, true)}
	}
	graph := waitgraph.New(zerolog.Nop(), waitgraph.Patience)
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Graph: graph})
	in := backendtest.NewHeld("m_0")
	d.Available(in)
	if err := d.Submit(t.Context(), req, func(*infer.Response) {}); err != nil {
		t.Errorf("a request of depth %d: %v", req.Depth(), err)
	}
	in.EndAll()
	deeper := &infer.Request{Model: "last", Caller: infer.NewCaller(req.Model, 1, []*infer.Request{req}, true)}
	err := d.Submit(t.Context(), deeper, nil)
	const want = "Model 'last' cannot be called: models call each other more than 64 deep (m0 → m1 → m2 → m3 → … → m62 → m63 → m64 → last)"
	var e *infer.Error
	if !errors.As(err, &e) || e.Code != infer.Internal || e.Message != want {
		t.Errorf("a deeper one: got %v, want %q", err, want)
	}
	if d.InFlight() != 0 || graph.Open() != 0 {
		t.Errorf("%d in flight, %d with open BLS requests, want none", d.InFlight(), graph.Open())
	}
	short := &infer.Request{Model: "b", Caller: infer.NewCaller("a", 1, []*infer.Request{{Model: "a"}}, true)}
	if got := waitgraph.Chain(short); got != "a → b" {
		t.Errorf("a short chain: got %s", got)
	}
}
