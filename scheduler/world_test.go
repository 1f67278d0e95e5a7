package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// world is a few models that share a graph, whose instances do what a test says
// step by step. It is used by one goroutine at a time.
type world struct {
	t         testing.TB
	graph     *Graph
	models    map[string]*Batcher
	counts    map[string]*counter
	instances map[string]*actor
	asked     map[string]*asked
	drained   int // calls after steps "retire"
}

// asked is a request of a world.
type asked struct {
	request *infer.Request
	model   string
	outer   string // "" for a client's
	holding bool
	cancel  context.CancelFunc
	task    *backend.Task // once an instance has had it
	batch   *backend.Batch
	by      *actor // that has it
	refused error
	final   atomic.Pointer[infer.Response] // timers answer, too
}

func (r *asked) over() bool { return r.final.Load() != nil || r.refused != nil }

// actor is an instance that executes until the test ends it.
type actor struct {
	world *world
	name  string
	model string
	ahead bool     // it takes one ahead
	has   []string // ids
	down  bool
}

func (a *actor) Name() string                { return a.name }
func (a *actor) Ready(context.Context) error { return nil }
func (a *actor) Ahead() bool                 { return a.ahead && len(a.has) < 2 }
func (a *actor) Withdraw()                   {}

func (a *actor) Execute(b *backend.Batch) {
	if a.down {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	id := b.Tasks[0].Request.ID
	a.has = append(a.has, id)
	r := a.world.asked[id]
	r.batch, r.task, r.by = b, b.Tasks[0], a
}

// newWorld makes models of the given numbers of instances: "a1 b2".
func newWorld(t testing.TB, models string) *world {
	w := &world{
		t: t, graph: NewGraph(), models: map[string]*Batcher{}, counts: map[string]*counter{},
		instances: map[string]*actor{}, asked: map[string]*asked{},
	}
	for _, m := range strings.Fields(models) {
		name, n := m[:1], int(m[1]-'0')
		w.counts[name] = &counter{}
		w.models[name] = NewBatcher(BatcherConfig{Model: name, Observer: w.counts[name], Graph: w.graph})
		for i := range n {
			a := &actor{world: w, name: fmt.Sprintf("%s%d", name, i), model: name}
			w.instances[a.name] = a
			w.models[name].Up(a)
		}
	}
	return w
}

// send sends a request, a client's or one that the execution of outer makes.
func (w *world) send(id, model, outer string, holding bool) error {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &asked{request: &infer.Request{ID: id, Model: model}, model: model, cancel: cancel, outer: outer, holding: holding}
	if outer != "" {
		o := w.asked[outer]
		r.request.Caller = infer.NewCaller(o.model, 1, []*infer.Request{o.request}, holding)
	}
	w.asked[id] = r
	r.refused = w.models[model].Submit(ctx, r.request, func(response *infer.Response) {
		if r.final.Load() != nil {
			w.t.Errorf("request %s was answered after its last response", id)
		}
		if response.Final {
			r.final.Store(response)
		}
	})
	return r.refused
}

// leave ends the execution of a request without an answer.
func (w *world) leave(id string, report backend.Report) *asked {
	w.t.Helper()
	r := w.asked[id]
	if r == nil || r.by == nil || r.by.has[0] != id {
		w.t.Fatalf("request %s is not executed", id)
	}
	r.by.has = r.by.has[1:]
	r.by = nil
	r.batch.Done(r.batch, report)
	return r
}

// lose takes an instance down; what it executes fails.
func (w *world) lose(instance string, hopeless bool) {
	a := w.instances[instance]
	a.down = true
	var fail []string
	for i, id := range a.has {
		if r := w.asked[id]; i == 0 {
			fail = append(fail, id)
		} else {
			r.by = nil
			r.batch.Done(r.batch, backend.Report{Refused: true})
		}
	}
	a.has = nil
	for _, id := range fail {
		r := w.asked[id]
		r.by = nil
		r.batch.Done(r.batch, backend.Report{Err: errors.New("lost")})
		r.task.Send(infer.ErrorResponse(errors.New("lost")))
	}
	w.models[a.model].Down(a, hopeless)
}

func (w *world) up(instance string) {
	a := w.instances[instance]
	a.down = false
	w.models[a.model].Up(a)
}

// step does one step of a script and returns how a call was refused.
func (w *world) step(line string) error {
	w.t.Helper()
	f := append(strings.Fields(line), "", "", "")
	id := f[1]
	switch f[0] {
	case "ask": // a client sends a request to a model
		return w.send(id, f[2], "", false)
	case "call": // the execution of a request calls a model and waits
		return w.send(id, f[3], f[2], true)
	case "spawn": // the same, by something that goes on in the background
		return w.send(id, f[3], f[2], false)
	case "end": // the model returns its response
		w.leave(id, backend.Report{Executed: true}).task.Send(&infer.Response{Final: true})
	case "return": // execute returns, the last response is to come
		w.leave(id, backend.Report{Executed: true})
	case "again": // its model releases it in order to get it again
		w.leave(id, backend.Report{Executed: true, Rescheduled: []*backend.Task{w.asked[id].task}})
		for _, r := range w.asked {
			r.holding = r.holding && r.outer != id
		}
	case "say": // a response that is not the last
		w.asked[id].task.Send(&infer.Response{})
	case "answer": // the last one
		w.asked[id].task.Send(&infer.Response{Final: true})
	case "cancel": // the client goes
		w.asked[id].cancel()
	case "restart":
		w.lose(id, false)
	case "lose":
		w.lose(id, true)
	case "up":
		w.up(id)
	case "retire": // an instance gets no more
		a := w.instances[id]
		w.models[a.model].Retire(a, func() { w.drained++ })
	case "ahead":
		w.instances[id].ahead = true
	case "wait": // nothing happens
	case "runs":
		if r := w.asked[id]; r.by == nil || r.by.has[0] != id {
			w.t.Errorf("request %s is not executed", id)
		}
	case "waits":
		if r := w.asked[id]; r.by != nil || r.over() {
			w.t.Errorf("request %s does not wait: by %v, answered %v, refused %v", id, r.by, r.final.Load(), r.refused)
		}
	default:
		w.t.Fatalf("unknown step %q", line)
	}
	return nil
}

// finish ends all that is executed until nothing is, and wants nothing left.
func (w *world) finish() {
	w.t.Helper()
	for moved := true; moved; {
		moved = false
		for id, r := range w.asked {
			if r.by != nil && r.by.has[0] == id && !w.calls(id, false) {
				r = w.leave(id, backend.Report{Executed: true})
				if !r.over() {
					r.task.Send(&infer.Response{Final: true})
				}
				moved = true
			} else if r.by == nil && r.task != nil && !r.over() && !w.models[r.model].queues(id) && !w.calls(id, true) {
				r.task.Send(&infer.Response{Final: true}) // what went on in the background
				moved = true
			}
		}
	}
	for id, r := range w.asked {
		if !r.over() {
			w.t.Errorf("request %s of model %s was never answered", id, r.model)
		}
		r.cancel()
	}
	for name, d := range w.models {
		if d.InFlight() != 0 || w.counts[name].pending.Load() != 0 {
			w.t.Errorf("model %s at the end: %d in flight, %d pending", name, d.InFlight(), w.counts[name].pending.Load())
		}
	}
	if len(w.graph.calls) != 0 {
		w.t.Errorf("%d requests have open calls at the end", len(w.graph.calls))
	}
}

// calls reports whether a request has calls that are not over, of those that
// hold its instance or of all.
func (w *world) calls(id string, all bool) bool {
	for _, r := range w.asked {
		if r.outer == id && !r.over() && (all || r.holding) {
			return true
		}
	}
	return false
}

// queues reports whether a request waits for an instance.
func (d *Batcher) queues(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
		if r.task.Request.ID == id {
			return true
		}
	}
	return false
}
