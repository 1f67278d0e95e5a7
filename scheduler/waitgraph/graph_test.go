package waitgraph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
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

// scripted is a graph whose models and requests have the names of a script.
type scripted struct {
	t        *testing.T
	graph    *waitgraph.Graph
	models   map[string]*fakeScheduler
	requests map[string]*fakeRequest
	open     int
}

// TestTranscripts plays testdata. An effect is a rejection or a new number of requests with open
// BLS requests.
//
//	ask r a       a client sends r to the model a
//	call q r b    the execution of r calls the model b, which is checked if it has to wait
//	enter q r b   the same without the check
//	recheck q     say q, respond q: a response, and the last one
//	leave q
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/*.txt", func(t *testing.T) func(string) []string {
		s := &scripted{t: t, graph: waitgraph.New(zerolog.Nop(), 0), models: map[string]*fakeScheduler{}, requests: map[string]*fakeRequest{}}
		return s.step
	})
}

func (s *scripted) step(line string) (effects []string) {
	f := strings.Fields(line)
	id, err := f[1], error(nil)
	switch f[0] {
	case "ask":
		s.add(id, f[2])
	case "call", "enter":
		err = s.call(s.add(id, f[3]), s.requests[f[2]], f[0] == "call")
	case "recheck":
		s.graph.Recheck([]*waitgraph.BLSRequest{s.requests[id].bls})
		err = s.requests[id].refused
	case "say", "respond":
		s.graph.Responded(s.requests[id].bls, f[0] == "respond")
	case "leave":
		s.graph.Leave(s.requests[id].bls)
	default:
		s.t.Fatalf("unknown step %q", line)
	}
	if err != nil {
		effects = append(effects, fmt.Sprintf("%s is rejected: %v", id, err))
	}
	if open := s.graph.Open(); open != s.open {
		s.open = open
		effects = append(effects, fmt.Sprintf("open: %d", open))
	}
	if q := s.requests[id].bls; q != nil && q.Responses() > 0 {
		effects = append(effects, fmt.Sprintf("responses: %d", q.Responses()))
	}
	return effects
}

// add adds a request to the queue of a model.
func (s *scripted) add(id, model string) *fakeRequest {
	if s.models[model] == nil {
		s.models[model] = &fakeScheduler{name: model}
	}
	r := &fakeRequest{scheduler: s.models[model], request: &infer.Request{Model: model}}
	r.task = &backend.Task{Request: r.request}
	r.scheduler.waits = append(r.scheduler.waits, r)
	s.requests[id] = r
	return r
}

// call makes a request one of the execution of by.
func (s *scripted) call(r, by *fakeRequest, checked bool) error {
	r.request.Caller = infer.NewCaller(by.scheduler.name, 1, []*infer.Request{by.request}, true)
	s.graph.Enter(r, r.request.Caller, &r.bls)
	if !checked || r.scheduler.waits[0] == r {
		return nil
	}
	return s.graph.Check(r.bls)
}
