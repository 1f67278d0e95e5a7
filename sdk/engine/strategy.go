package engine

import (
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
)

// Strategy returns the author's batching strategy, or nil if the model has none. The model has been
// created.
func (m *Model) Strategy() backend.Strategy {
	m.mu.Lock()
	defer m.mu.Unlock()
	author, ok := m.model.(sdk.Strategist)
	if !ok {
		return nil
	}
	if m.strategy == nil {
		m.strategy = &strategy{model: m, author: author, asked: make(chan question), answered: make(chan verdict), over: make(chan struct{})}
	}
	return m.strategy
}

// strategy calls an author's Strategist in a separate goroutine. A function that ends its goroutine
// by runtime.Goexit must not end the caller's, which belongs to a client or an instance and holds
// the scheduler's lock. The goroutine starts with the first question and ends with the model. A
// coroutine (iter.Pull) would be cheaper, but ends the process if an author or a caller has locked
// its goroutine to a thread.
//
// Questions are sequential, because callers hold the scheduler's lock. Each is sent on asked and
// its reply on answered, so the author's functions see the caller's earlier writes and vice versa.
type strategy struct {
	model  *Model
	author sdk.Strategist

	begin    sync.Once
	asked    chan question // sent by the scheduler; never closed
	answered chan verdict  // sent by the goroutine, once for each question; never closed
	over     chan struct{} // closed by Model.Close
}

// question is about a new batch, or about a request for which include decides.
type question struct {
	include func(bytes int64) bool // nil: a batch begins
	bytes   int64
}

type verdict struct {
	include func(bytes int64) bool // of the batch that begins
	yes     bool
}

// Begin implements backend.Strategy. A function that panics or ends its goroutine includes
// everything.
func (s *strategy) Begin() func(*infer.Request) bool {
	include := s.ask(question{}).include
	if include == nil {
		return nil
	}
	return func(r *infer.Request) bool {
		var bytes int64
		for i := range r.Inputs {
			bytes += r.Inputs[i].Size()
		}
		return s.ask(question{include, bytes}).yes
	}
}

// ask sends a question to the goroutine and returns its reply. A closed model excludes nothing.
func (s *strategy) ask(q question) verdict {
	s.begin.Do(func() { panics.Go(s.model.backend.env.Own, panics.Models, s.run, nil) })
	select {
	case s.asked <- q:
		return <-s.answered
	case <-s.over:
		return verdict{yes: true}
	}
}

// run is the goroutine.
func (s *strategy) run() {
	var q question
	a, asked := verdict{}, false
	defer func() {
		if !asked {
			return
		}
		_ = s.model.backend.gone(q.hook(), s.model.log) // hook recovers panics
		panics.Go(s.model.backend.env.Own, panics.Models, s.run, nil)
		s.answered <- verdict{yes: true}
	}()
	for {
		select {
		case q = <-s.asked:
		case <-s.over:
			return
		}
		a, asked = verdict{yes: true}, true
		_ = s.model.backend.hook(q.hook(), s.model.log, func() error {
			if q.include == nil {
				a.include = s.author.BeginBatch()
			} else {
				a.yes = q.include(q.bytes)
			}
			return nil
		})
		asked = false
		s.answered <- a
	}
}

// hook returns the name of the author's function.
func (q *question) hook() string {
	if q.include == nil {
		return "BeginBatch"
	}
	return "the function of BeginBatch"
}
