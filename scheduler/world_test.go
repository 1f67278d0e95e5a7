package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// world is a set of models that share a wait graph. Their instances follow the steps of a test.
// Only one goroutine may use it at a time.
type world struct {
	t         testing.TB
	graph     *waitgraph.Graph
	models    map[string]*scheduler.Batcher
	counts    map[string]*counter
	instances map[string]*actor
	asked     map[string]*asked
	drained   int // number of drained instances
	answered  int // retired instances that had sent all last responses
}

// asked is a request of a world.
type asked struct {
	request *infer.Request
	model   string
	outer   string // "" for a client's request
	holding bool
	cancel  context.CancelFunc
	task    *backend.Task // set once an instance has got it, unless the instance has refused it
	batch   *backend.Batch
	by      *actor // the instance that has it
	refused error
	final   atomic.Pointer[infer.Response] // atomic because timers respond too
}

func (r *asked) over() bool { return r.final.Load() != nil || r.refused != nil }

// actor is an instance that executes a batch until the test ends it.
type actor struct {
	world  *world
	called string
	model  string
	ahead  bool // takes one batch ahead
	has    []*backend.Batch
	down   bool
	lost   bool // down for good
}

func (a *actor) Name() string                { return a.called }
func (a *actor) Ready(context.Context) error { return nil }
func (a *actor) Ahead() bool                 { return a.ahead && len(a.has) < 2 }
func (a *actor) Withdraw()                   {}

func (a *actor) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pipeliner: a}
}

func (a *actor) Execute(b *backend.Batch) {
	if a.down {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	a.has = append(a.has, b)
	for _, task := range b.Tasks {
		r := a.world.asked[task.Request.ID]
		r.batch, r.task, r.by = b, task, a
	}
}

// queued reports whether the request waits for an instance.
func (r *asked) queued() bool { return r.task == nil && !r.over() }

// executed reports whether an instance is executing the request. A batch ahead does not count.
func (r *asked) executed() bool { return r.by != nil && r.by.has[0] == r.batch }

// with lists the requests of a batch. If open is true, it leaves out requests that are over.
func (w *world) with(b *backend.Batch, open bool) (list []*infer.Request) {
	for _, task := range b.Tasks {
		if !open || !w.asked[task.Request.ID].over() {
			list = append(list, task.Request)
		}
	}
	return list
}

// newWorld creates models with numbers of instances, as in "a1 b2", and optionally a maximum batch
// size, as in "a1x4".
func newWorld(t testing.TB, models string) *world {
	w := &world{
		t: t, graph: waitgraph.New(zerolog.Nop(), waitgraph.Patience), models: map[string]*scheduler.Batcher{}, counts: map[string]*counter{},
		instances: map[string]*actor{}, asked: map[string]*asked{},
	}
	for _, m := range strings.Fields(models) {
		name, n := m[:1], int(m[1]-'0')
		w.counts[name] = &counter{}
		var rules *batching.Rules
		if _, size, batches := strings.Cut(m, "x"); batches {
			rules = &batching.Rules{MaxSize: int64(size[0] - '0')}
		}
		w.models[name] = scheduler.NewBatcher(scheduler.BatcherConfig{Model: name, Observer: w.counts[name], Graph: w.graph, Batching: rules})
		for i := range n {
			a := &actor{world: w, called: fmt.Sprintf("%s%d", name, i), model: name}
			w.instances[a.called] = a
			w.models[name].Available(a)
		}
	}
	return w
}

// send sends a client's request, or a request from the execution of outer.
func (w *world) send(id, model, outer string, holding bool) error {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &asked{request: &infer.Request{ID: id, Model: model}, model: model, cancel: cancel, outer: outer, holding: holding}
	if outer != "" {
		o := w.asked[outer]
		requests := []*infer.Request{o.request}
		if o.batch != nil {
			requests = w.with(o.batch, !holding)
		}
		r.request.Caller = infer.NewCaller(o.model, 1, requests, holding)
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

// leave ends the execution of a request's batch without a response.
func (w *world) leave(id string, report backend.Report) *backend.Batch {
	w.t.Helper()
	r := w.asked[id]
	if r == nil || !r.executed() {
		w.t.Fatalf("request %s is not executed", id)
	}
	b := r.batch
	r.by.has = r.by.has[1:]
	w.without(b)
	b.Done(b, report)
	return b
}

// without records that no instance has the batch.
func (w *world) without(b *backend.Batch) {
	for _, task := range b.Tasks {
		w.asked[task.Request.ID].by = nil
	}
}

// answer sends the last responses of a batch.
func (w *world) answer(b *backend.Batch) {
	for _, task := range b.Tasks {
		if !w.asked[task.Request.ID].over() {
			task.Send(&infer.Response{Final: true})
		}
	}
}

// lose makes an instance lost. Its executing batch fails.
func (w *world) lose(instance string, hopeless bool) {
	a := w.instances[instance]
	a.down, a.lost = true, hopeless
	has := a.has
	a.has = nil
	for i, b := range has {
		w.without(b)
		if i > 0 {
			for _, task := range b.Tasks {
				w.asked[task.Request.ID].task = nil
			}
			b.Done(b, backend.Report{Refused: true})
		}
	}
	if len(has) > 0 {
		b := has[0]
		b.Done(b, backend.Report{Err: errors.New("lost")})
		for _, task := range b.Tasks {
			if !w.asked[task.Request.ID].over() {
				task.Send(infer.ErrorResponse(errors.New("lost")))
			}
		}
	}
	w.models[a.model].Lost(a, hopeless)
}

// up makes an instance available. An unknown one is new.
func (w *world) up(instance string) {
	a := w.instances[instance]
	if a == nil {
		a = &actor{world: w, called: instance, model: instance[:1]}
		w.instances[instance] = a
	}
	a.down, a.lost = false, false
	w.models[a.model].Available(a)
}

// step runs one step of a script and returns the error of a rejected request.
func (w *world) step(line string) error {
	w.t.Helper()
	f := append(strings.Fields(line), "", "", "")
	id := f[1]
	switch f[0] {
	case "ask": // a client sends a request to a model
		return w.send(id, f[2], "", false)
	case "call": // the execution of a request calls a model and waits
		return w.send(id, f[3], f[2], true)
	case "spawn": // the same from a background task
		return w.send(id, f[3], f[2], false)
	case "end": // the model returns its response
		w.answer(w.leave(id, backend.Report{Executed: true}))
	case "return": // execute returns, the last response comes later
		w.leave(id, backend.Report{Executed: true})
	case "again": // the model reschedules the request and responds to the others of the batch
		b := w.asked[id].batch
		w.leave(id, backend.Report{Executed: true, Rescheduled: []*backend.Task{w.asked[id].task}})
		for _, task := range b.Tasks {
			if task.Request.ID != id {
				task.Send(&infer.Response{Final: true})
			}
		}
		for _, r := range w.asked {
			r.holding = r.holding && r.outer != id
		}
	case "say": // a response that is not the last
		w.asked[id].task.Send(&infer.Response{})
	case "answer": // the last response
		w.asked[id].task.Send(&infer.Response{Final: true})
	case "cancel": // the client disconnects
		w.asked[id].cancel()
	case "restart":
		w.lose(id, false)
	case "lose":
		w.lose(id, true)
	case "up":
		w.up(id)
	case "retire": // the instance gets no more batches
		a := w.instances[id]
		if w.models[a.model].Retire(a, func() { w.drained++ }) {
			w.answered++
		}
	case "forget":
		a := w.instances[id]
		w.models[a.model].Forget(a)
	case "ahead":
		w.instances[id].ahead = true
	case "runs":
		if r := w.asked[id]; !r.executed() {
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

// situation lists the batches of the instances, the errors of the requests, and the numbers of
// failures, of drained instances, and of retired ones that had sent all last responses.
func (w *world) situation() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(w.instances)) {
		for i, b := range w.instances[name].has {
			list = append(list, name+[]string{" executes ", " takes ahead "}[i]+ids(b))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.asked)) {
		r := w.asked[id]
		if r.refused != nil {
			list = append(list, fmt.Sprintf("%s is rejected: %s", id, infer.AsError(r.refused).Status()))
		} else if final := r.final.Load(); final != nil && final.Err != nil {
			list = append(list, fmt.Sprintf("%s failed: %s", id, strings.TrimSuffix(final.Err.Status(), ": ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.counts)) {
		if n := w.counts[name].Failures.Load(); n > 0 {
			list = append(list, fmt.Sprintf("failures of %s: %d", name, n))
		}
	}
	return append(list, fmt.Sprintf("drained: %d", w.drained), fmt.Sprintf("retired without unanswered requests: %d", w.answered))
}

// finish ends executions until none is left, and checks that nothing else is left.
func (w *world) finish() {
	w.t.Helper()
	for moved := true; moved; {
		moved = false
		for id, r := range w.asked {
			if r.executed() && !w.calls(r.batch, false) {
				w.answer(w.leave(id, backend.Report{Executed: true}))
				moved = true
			} else if r.by == nil && r.task != nil && !r.over() && !w.calls(r.batch, true) {
				r.task.Send(&infer.Response{Final: true}) // the end of a background execution
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
		// A cancelled request leaves the count after its response, in another goroutine.
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		err := d.Drain(ctx)
		cancel()
		if err != nil || d.InFlight() != 0 || w.counts[name].Waiting.Load() != 0 {
			w.t.Errorf("model %s at the end: %d in flight, %d pending", name, d.InFlight(), w.counts[name].Waiting.Load())
		}
	}
	if n := w.graph.Open(); n != 0 {
		w.t.Errorf("%d requests have open BLS requests at the end", n)
	}
}

// calls reports whether the requests of a batch have calls that are not over: any calls if all is
// true, else those that hold the instance.
func (w *world) calls(b *backend.Batch, all bool) bool {
	for _, r := range w.asked {
		if r.outer != "" && !r.over() && (all || r.holding) && w.asked[r.outer].batch == b {
			return true
		}
	}
	return false
}
