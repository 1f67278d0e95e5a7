package stacked

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// ConfigOf parses the text of a config.
func ConfigOf(t testing.TB, text string) *kserve.ModelConfig {
	t.Helper()
	c := &kserve.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

const stackedConfig = `
name: "m"
max_batch_size: 64
dynamic_batching { }
parameters { key: "BATCH_MODE" value { string_value: "stacked" } }
`

// ledger lends memory and tracks its references.
type ledger struct {
	mu    sync.Mutex
	all   []*lent
	limit int // maximum bytes of one tensor; 0: no limit
}

func (l *ledger) lend(what string) *lent {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &lent{ledger: l, what: what, refs: 1}
	l.all = append(l.all, m)
	return m
}

// allocate is an Allocator. The memory is not zeroed.
func (l *ledger) allocate(n int) ([]byte, infer.Memory, error) {
	if l.limit > 0 && n > l.limit {
		return nil, nil, errFull
	}
	return bytes.Repeat([]byte{0xa5}, n), l.lend("a merged input"), nil
}

// check fails the test if any memory is still referenced.
func (l *ledger) check(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.all {
		if m.refs != 0 {
			t.Errorf("%s has %d references left", m.what, m.refs)
		}
	}
}

type lent struct {
	ledger *ledger
	what   string
	refs   int
}

func (l *lent) Retain() {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	if l.refs <= 0 {
		panic(l.what + " is retained after its last release")
	}
	l.refs++
}

func (l *lent) Release() {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	if l.refs <= 0 {
		panic(l.what + " is released too often")
	}
	l.refs--
}

var errFull = infer.Errorf(infer.InvalidArg, "no memory today")

// model is an instance that responds at once if execute is set.
type model struct {
	execute  func(*infer.Request) *infer.Response // if nil, Execute sends no response
	report   backend.Report
	got      []*infer.Request
	open     []*backend.Task
	told     []*backend.Task // cancelled tasks
	rejected bool
}

func (m *model) Name() string { return "m_0" }

func (m *model) Ready(context.Context) error { return errors.New("not today") }

func (m *model) Cancel(task *backend.Task) { m.told = append(m.told, task) }

func (m *model) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: m}
}

func (m *model) Execute(b *backend.Batch) {
	if m.rejected {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	if len(b.Tasks) != 1 {
		panic("a stacked batch has one task")
	}
	task := b.Tasks[0]
	m.got = append(m.got, task.Request)
	report := m.report
	report.Executed = true
	if len(report.Rescheduled) > 0 {
		report.Rescheduled = b.Tasks
	}
	var r *infer.Response
	if m.execute != nil {
		r = m.execute(task.Request)
	} else {
		m.open = append(m.open, task)
	}
	b.Done(b, report)
	if r != nil {
		task.Send(r)
	}
}

// sched is a fake scheduler.
type sched struct {
	up   []backend.Instance
	down []backend.Instance
}

func (s *sched) Available(in backend.Instance) { s.up = append(s.up, in) }

func (s *sched) Lost(in backend.Instance, _ bool) { s.down = append(s.down, in) }

// fixture is a stacked instance between a fake model and a fake scheduler.
type fixture struct {
	t       testing.TB
	ledger  ledger
	model   *model
	account *budget.Account
	events  *Events
	sched   sched
	in      backend.Instance
}

func (r *fixture) batch(requests ...*infer.Request) *batch {
	b := &batch{}
	for _, req := range requests {
		a := &answered{}
		a.Context, a.cancel = context.WithCancel(context.Background())
		r.t.Cleanup(a.cancel)
		a.Request = req
		a.Send = func(response *infer.Response) { a.responses = append(a.responses, response) }
		b.tasks = append(b.tasks, a)
		b.Tasks = append(b.Tasks, &a.Task)
	}
	b.Done = func(of *backend.Batch, report backend.Report) {
		if of != &b.Batch {
			r.t.Error("Done is about another batch")
		}
		b.reports = append(b.reports, report)
	}
	return b
}

// run executes requests as one batch and waits until the model has it.
func (r *fixture) run(requests ...*infer.Request) *batch {
	b := r.batch(requests...)
	r.in.Execute(&b.Batch)
	r.in.(*instance).settle()
	return b
}

// release releases all responses of the batch and checks that nothing is left.
func (r *fixture) release(b *batch) {
	r.t.Helper()
	for _, a := range b.tasks {
		for _, response := range a.responses {
			response.Release()
		}
	}
	r.ledger.check(r.t)
	if n := len(r.in.(*instance).groups); n != 0 {
		r.t.Errorf("%d groups are left", n)
	}
}

func newFixture(t testing.TB, config string, execute func(*infer.Request) *infer.Response) *fixture {
	t.Helper()
	plan, err := NewPlan(ConfigOf(t, stackedConfig+config))
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{t: t, model: &model{execute: execute}, account: budget.New(budget.Config{Limit: 64 << 20})}
	r.events = NewEvents(plan, r.ledger.allocate, r.account, &r.sched)
	r.events.Available(r.model)
	r.in = r.sched.up[0]
	return r
}

// answered is a task and its responses.
type answered struct {
	backend.Task
	cancel    context.CancelFunc
	responses []*infer.Response
}

// batch is a batch and its reports.
type batch struct {
	backend.Batch
	tasks   []*answered
	reports []backend.Report
}

// ints returns an INT32 tensor.
func ints(name string, shape []int64, values ...int32) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Int32, Shape: shape, Data: testkit.TensorData(values...)}
}

func texts(name string, shape []int64, values ...string) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Bytes, Shape: shape, Data: testkit.TensorData(values...)}
}

func dims(d ...int64) []int64 { return d }

func request(inputs ...infer.Tensor) *infer.Request {
	return &infer.Request{Model: "m", BatchSize: inputs[0].Shape[0], Inputs: inputs}
}

// sameTensors compares tensors without their memory.
func sameTensors(a, b []infer.Tensor) bool {
	return slices.EqualFunc(a, b, func(a, b infer.Tensor) bool {
		return a.Name == b.Name && a.DataType == b.DataType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
	})
}
