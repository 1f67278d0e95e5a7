package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// author is a backend whose hooks are functions; nil ones do nothing.
type author struct {
	initialize  func(*sdk.BackendEnv) error
	asked       func() // on a query of the attributes
	attributes  sdk.Attributes
	newModel    func(*sdk.ModelEnv) error
	newInstance func(*sdk.InstanceEnv) error
	execute     func(ctx context.Context, requests []*sdk.Request) error
	ready       func(context.Context) error
	closed      func(what string)

	instance atomic.Pointer[sdk.InstanceEnv] // the latest
}

func (a *author) open(env *sdk.BackendEnv) (sdk.Backend, error) {
	if a.initialize != nil {
		if err := a.initialize(env); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *author) close(what string) {
	if a.closed != nil {
		a.closed(what)
	}
}

func (a *author) Attributes() sdk.Attributes {
	if a.asked != nil {
		a.asked()
	}
	return a.attributes
}

func (a *author) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	if a.newModel != nil {
		if err := a.newModel(env); err != nil {
			return nil, err
		}
	}
	return (*authorModel)(a), nil
}

func (a *author) Close() { a.close("backend") }

type authorModel author

func (m *authorModel) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	m.instance.Store(env)
	if m.newInstance != nil {
		if err := m.newInstance(env); err != nil {
			return nil, err
		}
	}
	if m.ready != nil {
		return readyInstance{(*authorInstance)(m)}, nil
	}
	return (*authorInstance)(m), nil
}

func (m *authorModel) Close() { (*author)(m).close("model") }

type authorInstance author

func (in *authorInstance) Execute(ctx context.Context, requests []*sdk.Request) error {
	return in.execute(ctx, requests)
}

func (in *authorInstance) Close() { (*author)(in).close("instance") }

type readyInstance struct{ *authorInstance }

func (in readyInstance) Ready(ctx context.Context) error { return in.ready(ctx) }

// counted is memory that counts its references.
type counted struct {
	t    testing.TB
	refs atomic.Int64
}

func (c *counted) Retain() {
	if c.refs.Add(1) <= 1 {
		c.t.Error("memory was retained that had been given back")
	}
}

func (c *counted) Release() {
	if c.refs.Add(-1) < 0 {
		c.t.Error("memory was released too often")
	}
}

func newCounted(t testing.TB) *counted {
	c := &counted{t: t}
	c.refs.Store(1)
	return c
}

// fixture is an instance of an author's backend with its environment.
type fixture struct {
	t        testing.TB
	code     *author
	log      testkit.Buffer // the engine's messages
	said     testkit.Buffer // the author's messages
	backend  *engine.Backend
	model    *engine.Model
	instance *engine.Instance
	host     backend.Host
	metrics  engine.Metrics

	mu     sync.Mutex
	memory []*counted // of outputs
}

func (r *fixture) close() {
	if err := r.instance.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
	r.model.Close()
	r.backend.Close()
	r.wantNoMemory()
}

func (r *fixture) allocate(n int64) ([]byte, infer.Memory, error) {
	c := newCounted(r.t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory = append(r.memory, c)
	return make([]byte, n), c, nil
}

// wantNoMemory checks that all outputs were released.
func (r *fixture) wantNoMemory() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, m := range r.memory {
		if n := m.refs.Load(); n != 0 {
			r.t.Errorf("output %d has %d references left", i, n)
		}
	}
}

// execute executes requests as one batch and returns a channel with Done's report.
func (r *fixture) execute(clients ...*client) chan backend.Report {
	done := make(chan backend.Report, 1)
	b := &backend.Batch{Done: func(_ *backend.Batch, report backend.Report) { done <- report }}
	for _, c := range clients {
		b.Tasks = append(b.Tasks, c.task)
	}
	r.instance.Execute(b)
	return done
}

// author returns the environment of the author's instance.
func (r *fixture) author() *sdk.InstanceEnv { return r.code.instance.Load() }

// simple is the config of a model m with an input IN and an output OUT.
const simple = `{"name":"m","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],"output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[-1]}]%s}`

// with returns simple with additional fields.
func with(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return strings.Replace(simple, "%s", fields, 1)
}

// start starts an instance. It is closed with the test at the latest.
func start(t testing.TB, a *author, config string, change ...func(*fixture, *engine.Environment)) *fixture {
	t.Helper()
	r, err := tryStart(t, a, config, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

func tryStart(t testing.TB, a *author, config string, change ...func(*fixture, *engine.Environment)) (*fixture, error) {
	t.Helper()
	r := &fixture{t: t, code: a}
	env := engine.Environment{
		Name: "b", Own: zerolog.New(&r.log), Allocate: r.allocate,
		Log: func(level slog.Level, file string, _ int, message string) {
			_, _ = r.said.Write([]byte(level.String() + " " + file + " " + message + "\n"))
		},
	}
	for _, c := range change {
		c(r, &env)
	}
	var err error
	if r.backend, err = engine.Open(a.open, env); err != nil {
		return r, err
	}
	r.model = r.backend.Model(engine.Version{Name: "m", Version: 1, Directory: "/models/m", Host: r.host, Metrics: r.metrics})
	parsed, err := engine.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	if err = r.model.Start(t.Context(), parsed, []byte(config)); err != nil {
		r.backend.Close()
		return r, err
	}
	r.instance, err = r.model.Instance(t.Context(), engine.InstanceSpec{Name: "m_0_0", Kind: "CPU", HostPolicy: `{"cpu":{}}`})
	if err != nil {
		r.model.Close()
		r.backend.Close()
	}
	return r, err
}

const patience = 10 * time.Second

// client makes one request and collects its responses.
type client struct {
	t      testing.TB
	input  *counted
	ctx    context.Context
	cancel context.CancelFunc
	task   *backend.Task

	mu        sync.Mutex
	responses []*infer.Response
	keep      bool // responses are not released
}

func (c *client) take(r *infer.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.keep { // released responses must not be read
		own := *r
		own.Outputs = slices.Clone(r.Outputs)
		for i := range own.Outputs {
			t := &own.Outputs[i]
			t.Data, t.Shape = bytes.Clone(t.Data), slices.Clone(t.Shape)
		}
		r.Release()
		r = &own
	}
	c.responses = append(c.responses, r)
}

// wait waits until there are n responses and returns them.
func (c *client) wait(n int) []*infer.Response {
	c.t.Helper()
	testkit.Eventually(c.t, patience, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.responses) >= n
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.responses) != n {
		c.t.Fatalf("got %d responses, want %d", len(c.responses), n)
	}
	return c.responses
}

// wantInput waits until the input has refs references. The client itself holds one.
func (c *client) wantInput(refs int64) {
	c.t.Helper()
	testkit.Eventually(c.t, patience, func() bool { return c.input.refs.Load() == refs })
}

// ask creates a request with values in IN.
func ask(t testing.TB, values ...byte) *client {
	c := &client{t: t, input: newCounted(t)}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	data := make([]byte, 4*len(values))
	for i, v := range values {
		data[4*i] = v
	}
	c.task = &backend.Task{Context: c.ctx, Send: c.take, Request: &infer.Request{
		ID: "r", Model: "m", Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{int64(len(values))}, Data: data, Memory: c.input}},
	}}
	return c
}

// identity responds with a copy of each input and releases the request.
func identity(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		if err := answer(r, sdk.SendFinal); err != nil {
			return err
		}
		if err := r.Release(sdk.ReleaseAll); err != nil {
			return err
		}
	}
	return nil
}

// answer sends a copy of IN as OUT.
func answer(r *sdk.Request, flags uint32) error {
	in, err := r.Input("IN")
	if err != nil {
		return err
	}
	p, err := r.NewResponse()
	if err != nil {
		return err
	}
	out, err := p.Output("OUT", in.DataType(), in.Shape())
	if err != nil {
		return err
	}
	copy(out, in.Data())
	return p.Send(flags, nil)
}
