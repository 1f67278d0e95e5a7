package waitgraph_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// fakeScheduler is the scheduler of a model with one instance, which executes the first request.
type fakeScheduler struct {
	name    string
	waits   []*fakeRequest
	changes uint64
}

// fakeRequest is a request in a fakeScheduler, and its batch.
type fakeRequest struct {
	scheduler *fakeScheduler
	request   *infer.Request
	task      *backend.Task
	bls       *waitgraph.BLSRequest
	refused   error
}

func (s *fakeScheduler) Look() ([]waitgraph.Position, uint64, bool) {
	if len(s.waits) == 0 {
		return nil, s.changes, true
	}
	return []waitgraph.Position{s.waits[0].Position()}, s.changes, false
}

func (g *fakeRequest) Model() string                    { return g.scheduler.name }
func (g *fakeRequest) Instances() waitgraph.InstanceSet { return g.scheduler }
func (g *fakeRequest) Out()                             {}
func (g *fakeRequest) Refuse(err error)                 { g.refused = err }
func (g *fakeRequest) Members() []*backend.Task         { return []*backend.Task{g.task} }

func (g *fakeRequest) Position() waitgraph.Position {
	p := waitgraph.Position{Batch: g}
	switch at := slices.Index(g.scheduler.waits, g); {
	case at == 0:
		p.State, p.Executions = waitgraph.Executing, 1
	case at > 0:
		p.State = waitgraph.Queued
	}
	if g.bls != nil {
		p.Responses = g.bls.Responses()
	}
	return p
}

func (g *fakeRequest) TakeBack() bool {
	at := slices.Index(g.scheduler.waits, g)
	if at > 0 {
		g.scheduler.waits = slices.Delete(g.scheduler.waits, at, at+1)
	}
	return at > 0
}

// ask adds a request to a fakeScheduler. It is made by the execution of by, or by a client if by is
// nil.
func ask(graph *waitgraph.Graph, in *fakeScheduler, by *fakeRequest) (*fakeRequest, error) {
	g := &fakeRequest{scheduler: in, request: &infer.Request{Model: in.name}}
	g.task = &backend.Task{Request: g.request}
	if by == nil {
		in.waits = append(in.waits, g)
		return g, nil
	}
	g.request.Caller = infer.NewCaller(by.scheduler.name, 1, []*infer.Request{by.request}, true)
	graph.Enter(g, g.request.Caller, &g.bls)
	in.waits = append(in.waits, g)
	if len(in.waits) == 1 {
		return g, nil
	}
	return g, graph.Check(g.bls)
}

// TestCheckRefusesTheBLSRequestThatClosesACircle checks that Check rejects a BLS request that
// closes a cycle of three models, and that Open counts the requests with open BLS requests.
func TestCheckRefusesTheBLSRequestThatClosesACircle(t *testing.T) {
	graph := waitgraph.New(zerolog.Nop(), 0)
	a, b, c := &fakeScheduler{name: "a"}, &fakeScheduler{name: "b"}, &fakeScheduler{name: "c"}
	first, _ := ask(graph, a, nil)
	second, err := ask(graph, b, first)
	if err != nil {
		t.Fatal(err)
	}
	third, err := ask(graph, c, second)
	if err != nil {
		t.Fatal(err)
	}
	if graph.Open() != 2 {
		t.Errorf("%d requests have open BLS requests, want 2", graph.Open())
	}
	_, err = ask(graph, a, third)
	const want = "Model 'a' cannot be called: every instance of it waits for this call (a → b → c → a)"
	var refused *infer.Error
	if !errors.As(err, &refused) || refused.Message != want {
		t.Errorf("the BLS request back to a: got error %v, want %q", err, want)
	}
	graph.Responded(third.bls, false)
	if third.bls.Responses() != 1 || graph.Open() != 2 {
		t.Errorf("after a response that is not the last: %d responses, %d with open BLS requests", third.bls.Responses(), graph.Open())
	}
	graph.Responded(third.bls, true)
	graph.Leave(second.bls)
	graph.Leave(second.bls)
	if graph.Open() != 0 {
		t.Errorf("%d requests have open BLS requests at the end", graph.Open())
	}
}

// TestRecheckRefusesWhatLostItsLastHope checks that Recheck rejects a waiting BLS request when the
// cycle is closed later by something other than a BLS request.
func TestRecheckRefusesWhatLostItsLastHope(t *testing.T) {
	graph := waitgraph.New(zerolog.Nop(), 0)
	a, b := &fakeScheduler{name: "a"}, &fakeScheduler{name: "b"}
	other, _ := ask(graph, b, nil)
	first, _ := ask(graph, a, nil)
	second, err := ask(graph, b, first)
	if err != nil {
		t.Fatalf("a BLS request that waits for a client's request: %v", err)
	}
	graph.Recheck([]*waitgraph.BLSRequest{second.bls})
	if second.refused != nil {
		t.Fatalf("a BLS request that waits for a client's request: %v", second.refused)
	}
	back, _ := ask(graph, a, nil)
	graph.Enter(back, infer.NewCaller("b", 1, []*infer.Request{other.request}, true), &back.bls)
	graph.Recheck([]*waitgraph.BLSRequest{second.bls})
	if second.refused == nil || graph.Open() != 1 {
		t.Errorf("got error %v with %d open, want a refusal and the other BLS request open", second.refused, graph.Open())
	}
}
