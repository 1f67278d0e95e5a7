package plugin_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/sdk/plugin"
	"github.com/nereid-serving/nereid/shm"
)

// TestMain runs this binary as a plugin if a server has started it.
func TestMain(m *testing.M) {
	if os.Getenv(ipc.PluginCookieKey) == ipc.PluginCookieValue {
		plugin.Serve(newActor)
	}
	// By default, a process with the race detector sleeps for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// patience bounds every wait of these tests. It is long enough for a busy machine.
const patience = 60 * time.Second

// fixture hosts plugins with the server's real packages.
type fixture struct {
	t          testing.TB
	pool       *shm.Pool
	supervisor *process.Supervisor
	backend    *native.Backend
	settings   map[string]string
	log        *testkit.Buffer
	printed    *testkit.Buffer
	registry   *metrics.Registry
	broken     []string // broken protocol rules
	mu         sync.Mutex
	host       backend.Host
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	region, err := shm.NewRegionUpTo(shm.Memfd{}, 4<<30, 64<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{t: t, pool: pool, settings: map[string]string{}, log: &testkit.Buffer{}, printed: &testkit.Buffer{}, registry: metrics.New(metrics.Config{})}
	log := zerolog.New(r.log)
	r.supervisor, err = process.New(process.Environment{
		Requests: pool, Log: log, Stdout: r.printed, Stderr: r.printed, Metrics: r, ClientRegions: true,
		LogLevels: func() process.LogLevels { return process.LogLevels{Info: true, Warning: true, Error: true} },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.backend = native.New(native.Environment{
		Supervisor: r.supervisor, Log: log, Settings: func(string) (map[string]string, string) { return r.settings, "{}" },
	})
	t.Cleanup(func() {
		r.supervisor.Close()
		if err := pool.Verify(); err != nil {
			t.Errorf("pool is not sound: %v", err)
		}
		if stats := pool.Stats(); stats.Blocks != 0 {
			t.Errorf("pool has %d blocks in use after all models were closed, want 0", stats.Blocks)
		}
		pool.Close()
		if len(r.broken) > 0 {
			t.Errorf("the protocol was broken: %v", r.broken)
		}
		if t.Failed() {
			t.Logf("log:\n%s\nprinted:\n%s", r.log, r.printed)
		}
	})
	return r
}

// Methods for the server's metrics and a model's events.

func (r *fixture) StubStarted(string)                  {}
func (r *fixture) StubLost(string, string)             {}
func (r *fixture) StubRestarted(string)                {}
func (r *fixture) Custom(model string) *metrics.Holder { return r.registry.Custom(model) }
func (r *fixture) Available(backend.Instance)          {}
func (r *fixture) Lost(backend.Instance, bool)         {}
func (r *fixture) ProtocolError(rule string) {
	r.mu.Lock()
	r.broken = append(r.broken, rule)
	r.mu.Unlock()
}

// running is a model with a started instance.
type running struct {
	fixture  *fixture
	model    backend.Model
	instance backend.Instance
	folder   string // of the model
	close    func()
}

func configOf(name string, change func(*kserve.ModelConfig)) *kserve.ModelConfig {
	c := &kserve.ModelConfig{
		Name: name, Backend: "actor", MaxBatchSize: 8,
		Input:         []*kserve.ModelInput{{Name: "IN0", DataType: kserve.DataType_TYPE_UINT8, Dims: []int64{-1}}},
		Output:        []*kserve.ModelOutput{{Name: "OUT0", DataType: kserve.DataType_TYPE_UINT8, Dims: []int64{-1}}},
		InstanceGroup: []*kserve.ModelInstanceGroup{{Name: name + "_0", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: 1}},
	}
	if change != nil {
		change(c)
	}
	return c
}

// open starts a model and returns Start's error. If complete is set, the config is completed first.
func (r *fixture) open(config *kserve.ModelConfig, complete bool) (*running, error) {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	folder := r.t.TempDir()
	model, err := r.backend.Open(backend.Env{
		Name: config.GetName(), Version: 1, Directory: folder, Config: config, Host: r.host, Plugin: self,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	m := &running{fixture: r, model: model, folder: folder}
	var once sync.Once
	m.close = func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := model.Close(ctx); err != nil {
				r.t.Errorf("Close: %v", err)
			}
		})
	}
	r.t.Cleanup(m.close)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(config)
	if err != nil {
		r.t.Fatal(err)
	}
	if complete {
		completed, err := model.AutoComplete(ctx, text)
		if err != nil {
			return m, err
		}
		if completed != nil {
			text = completed
		}
		_, _ = r.log.Write([]byte("completed: " + string(text) + "\n"))
	}
	if err := model.Start(ctx, config, text, r); err != nil {
		return m, err
	}
	m.instance = model.Instances()[0]
	return m, nil
}

// start starts the named model.
func (r *fixture) start(name string, change func(*kserve.ModelConfig)) *running {
	r.t.Helper()
	m, err := r.open(configOf(name, change), false)
	if err != nil {
		r.t.Fatalf("start %s: %v\nlog:\n%s\nprinted:\n%s", name, err, r.log, r.printed)
	}
	return m
}

// request returns a request with one input. A long input lies in a block of the pool.
func (r *fixture) request(data []byte) *infer.Request {
	r.t.Helper()
	t := infer.Tensor{Name: "IN0", DataType: infer.Uint8, Shape: []int64{1, int64(len(data))}, Data: data}
	if len(data) > 4096 {
		block, err := r.pool.Alloc(len(data))
		if err != nil {
			r.t.Fatal(err)
		}
		copy(block.Bytes(), data)
		t.Data, t.Memory = block.Bytes(), block
	}
	return &infer.Request{Inputs: []infer.Tensor{t}}
}

// flight is a batch in flight.
type flight struct {
	fixture   *fixture
	report    chan backend.Report
	responses []chan *infer.Response
	tasks     []*backend.Task
}

// execute executes a batch. ctx is the context of its clients.
func (m *running) execute(ctx context.Context, requests ...*infer.Request) *flight {
	e := &flight{fixture: m.fixture, report: make(chan backend.Report, 1)}
	batch := &backend.Batch{Done: func(_ *backend.Batch, report backend.Report) { e.report <- report }}
	for _, request := range requests {
		responses := make(chan *infer.Response, 10000)
		e.responses = append(e.responses, responses)
		batch.Tasks = append(batch.Tasks, &backend.Task{Context: ctx, Request: request, Send: func(r *infer.Response) { responses <- r }})
	}
	e.tasks = batch.Tasks
	m.instance.Execute(batch)
	return e
}

// next waits for the next response to request i.
func (e *flight) next(i int) *infer.Response {
	e.fixture.t.Helper()
	select {
	case r := <-e.responses[i]:
		return r
	case <-time.After(patience):
		e.fixture.t.Fatalf("request %d was not answered within %v; log:\n%s\nprinted:\n%s", i, patience, e.fixture.log, e.fixture.printed)
		return nil
	}
}

// done waits for the batch's report.
func (e *flight) done() backend.Report {
	e.fixture.t.Helper()
	select {
	case report := <-e.report:
		return report
	case <-time.After(patience):
		e.fixture.t.Fatalf("the batch was not done within %v; log:\n%s\nprinted:\n%s", patience, e.fixture.log, e.fixture.printed)
		return backend.Report{}
	}
}

// infer executes one request, releases its inputs and returns its response, which the caller
// releases.
func (m *running) infer(request *infer.Request) *infer.Response {
	m.fixture.t.Helper()
	e := m.execute(context.Background(), request)
	r := e.next(0)
	if report := e.done(); report.Refused {
		m.fixture.t.Fatal("the batch was refused")
	}
	for i := range request.Inputs {
		request.Inputs[i].Release()
	}
	return r
}

// wantBytes checks that a response has one output with the given bytes, and releases it.
func (m *running) wantBytes(r *infer.Response, want []byte) {
	m.fixture.t.Helper()
	defer r.Release()
	if r.Err != nil || len(r.Outputs) != 1 {
		m.fixture.t.Fatalf("got error %v and %d outputs, want one; log:\n%s", r.Err, len(r.Outputs), m.fixture.log)
	}
	if o := &r.Outputs[0]; o.Name != "OUT0" || !bytes.Equal(o.Data, want) {
		m.fixture.t.Errorf("got %s of %d bytes, want OUT0 of %d; they differ", o.Name, len(o.Data), len(want))
	}
}
