package server

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/models"
)

// fakeModel answers inferences. The default sends back each INPUTn as OUTPUTn.
type fakeModel struct {
	enters bool // infer says itself when a request has entered
	info   *models.Info
	labels string // content of the outputs' label file
	infer  func(ctx context.Context, req *infer.Request, send infer.Sender) error

	successor *fakeModel // takes the place of this one when the first request is to run
	replaced  atomic.Bool
}

// fakeCore stands for models.Registry. It validates nothing but names.
type fakeCore struct {
	mu     sync.Mutex
	models map[string]*fakeModel
	live   error // what Live and Ready say
	unripe bool  // not ready

	loads   []string
	load    func(ctx context.Context, name, config string, files map[string][]byte) error
	panics  bool         // a handler may panic
	served  atomic.Int64 // inferences
	lastReq *infer.Request
}

// tensor names and dims of a fakeModel's config, such as "INPUT0 FP32 4".
func model(name string, maxBatch int32, tensors ...string) *fakeModel {
	cfg := &kserve.ModelConfig{Name: name, Backend: "python", MaxBatchSize: maxBatch}
	for _, s := range tensors {
		f := strings.Fields(s)
		var dims []int64
		for _, d := range strings.Split(f[2], ",") {
			var n int64
			_, _ = fmt.Sscan(d, &n)
			dims = append(dims, n)
		}
		d := kserve.DataType(infer.ParseDataType(f[1]))
		if strings.HasPrefix(f[0], "IN") {
			cfg.Input = append(cfg.Input, &kserve.ModelInput{Name: f[0], DataType: d, Dims: dims, Optional: len(f) > 3})
		} else {
			cfg.Output = append(cfg.Output, &kserve.ModelOutput{Name: f[0], DataType: d, Dims: dims})
		}
	}
	return &fakeModel{info: &models.Info{Name: name, Version: 1, Config: cfg, JSON: []byte(`{"name":"` + name + `"}`)}}
}

// newFakeCore has the models that the comparison with Triton serves too.
func newFakeCore(more ...*fakeModel) *fakeCore {
	c := &fakeCore{models: map[string]*fakeModel{}}
	for d := infer.Bool; d <= infer.BF16; d++ {
		more = append(more, model("id_"+strings.ToLower(d.String()), 0, "INPUT0 "+d.String()+" -1", "OUTPUT0 "+d.String()+" -1"))
	}
	classes := model("classes", 8, "INPUT0 FP32 4", "OUTPUT0 FP32 4")
	classes.labels = "cat\ndog\n\nhorse\n"
	classes.info.Labels = map[string][]string{"OUTPUT0": {"cat", "dog", "", "horse"}}
	fails := model("fails", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	fails.infer = func(_ context.Context, _ *infer.Request, send infer.Sender) error {
		send(infer.ErrorResponse(infer.Errorf(infer.Unavailable, "it fails: \"ü\" /x")))
		return nil
	}
	decoupled := model("decoupled", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	decoupled.info.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	more = append(more, classes, fails, decoupled,
		model("batch", 8, "INPUT0 FP32 4", "OUTPUT0 FP32 4"),
		model("multi", 0, "INPUT0 INT32 -1 optional", "INPUT1 FP32 -1 optional", "INPUT2 BYTES -1 optional", "INPUT3 BOOL -1 optional",
			"OUTPUT0 INT32 -1", "OUTPUT1 FP32 -1", "OUTPUT2 BYTES -1", "OUTPUT3 BOOL -1"))
	for _, m := range more {
		if m.infer == nil {
			m.infer = m.echo
		}
		c.models[m.info.Name] = m
	}
	return c
}

func (m *fakeModel) echo(_ context.Context, req *infer.Request, send infer.Sender) error {
	cfg := m.info.Config
	if req.Raw {
		in := cfg.Input[0]
		t := &req.Inputs[0]
		t.Name, t.DataType = in.Name, infer.DataType(in.DataType)
		t.Shape = []int64{int64(len(t.Data) / max(1, t.DataType.Size()))}
	}
	r := &infer.Response{Model: req.Model, Version: 1, ID: req.ID, Final: true}
	for _, name := range req.Outputs {
		if !slices.ContainsFunc(cfg.Output, func(o *kserve.ModelOutput) bool { return o.Name == name }) {
			return infer.Errorf(infer.InvalidArg, "unexpected inference output '%s' for model '%s'", name, req.Model)
		}
	}
	for _, out := range cfg.Output {
		in := req.Input(strings.Replace(out.Name, "OUTPUT", "INPUT", 1))
		if in == nil || len(req.Outputs) > 0 && !slices.Contains(req.Outputs, out.Name) {
			continue
		}
		t := *in
		t.Name = out.Name
		t.Retain()
		r.Outputs = append(r.Outputs, t)
	}
	send(r)
	return nil
}

func (c *fakeCore) find(name string, version int64) (*fakeModel, error) {
	m := c.models[name]
	if m == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", name)
	}
	if version != infer.LatestVersion && version != 1 {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' version %d is not found", name, version)
	}
	if m.replaced.Load() {
		return m.successor, nil
	}
	return m, nil
}

func (c *fakeCore) Target(name string, version int64) (models.Target, error) {
	m, err := c.find(name, version)
	if err != nil {
		return nil, err
	}
	return fakeTarget{c, m}, nil
}

// fakeTarget is one model of a fakeCore, and may be replaced before it has run
// anything.
type fakeTarget struct {
	c *fakeCore
	m *fakeModel
}

func (t fakeTarget) Info() *models.Info { return t.m.info }

func (t fakeTarget) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	c, m := t.c, t.m
	if m.successor != nil {
		m.replaced.Store(true)
		return models.ErrReplaced
	}
	c.served.Add(1)
	c.mu.Lock()
	copied := *req
	copied.Inputs = slices.Clone(req.Inputs)
	c.lastReq = &copied
	c.mu.Unlock()
	if req.Entered != nil && !m.enters {
		req.Entered()
	}
	return m.infer(ctx, req, send)
}

func (c *fakeCore) last() *infer.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastReq
}

func (c *fakeCore) Live() (bool, error)                 { return c.live == nil, c.live }
func (c *fakeCore) Ready(context.Context) (bool, error) { return !c.unripe, c.live }
func (c *fakeCore) ReadyVersions(string) []int64        { return []int64{1} }
func (c *fakeCore) Model(name string, version int64) (*models.Info, error) {
	m, err := c.find(name, version)
	if err != nil {
		return nil, err
	}
	return m.info, nil
}

func (c *fakeCore) ModelReady(_ context.Context, name string, version int64) (bool, error) {
	_, err := c.find(name, version)
	return name != "fails", err
}

func (c *fakeCore) Statistics(name string, version int64) ([]*kserve.ModelStatistics, error) {
	if name == "" {
		return []*kserve.ModelStatistics{fakeStatistics("a"), {Name: "b", Version: "2"}}, nil
	}
	if c.models[name] == nil {
		return nil, infer.Errorf(infer.InvalidArg, "requested model '%s' is not available", name)
	}
	if version > 1 {
		return nil, infer.Errorf(infer.InvalidArg, "requested model version is not available for model '%s'", name)
	}
	return []*kserve.ModelStatistics{{Name: name, Version: "1"}}, nil
}

func fakeStatistics(name string) *kserve.ModelStatistics {
	d := func(n uint64) *kserve.StatisticDuration { return &kserve.StatisticDuration{Count: n, Ns: 10 * n} }
	return &kserve.ModelStatistics{Name: name, Version: "1", LastInference: 1700000000000, InferenceCount: 12, ExecutionCount: 5,
		InferenceStats: &kserve.InferStatistics{Success: d(1), Fail: d(2), Queue: d(3), ComputeInput: d(4), ComputeInfer: d(5),
			ComputeOutput: d(6), CacheHit: d(7), CacheMiss: d(8)},
		BatchStats: []*kserve.InferBatchStatistics{{BatchSize: 4, ComputeInput: d(1), ComputeInfer: d(2), ComputeOutput: d(3)}, {BatchSize: 8}},
		ResponseStats: map[string]*kserve.InferResponseStatistics{
			"0": {ComputeInfer: d(1), ComputeOutput: d(2), Success: d(3), Fail: d(4), EmptyResponse: d(5), Cancel: d(6)}},
		MemoryUsage: []*kserve.MemoryUsage{{Type: "CPU", Id: 0, ByteSize: 64}}}
}

func (c *fakeCore) Index(ready bool) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	list := []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "a", Version: "1", State: "READY"}}
	if !ready {
		list = append(list, &kserve.RepositoryIndexResponse_ModelIndex{Name: "b", Version: "2", State: "UNAVAILABLE", Reason: "unloaded"},
			&kserve.RepositoryIndexResponse_ModelIndex{Name: "c"})
	}
	return list, nil
}

func (c *fakeCore) Load(ctx context.Context, name, config string, files map[string][]byte) error {
	if c.load != nil {
		return c.load(ctx, name, config, files)
	}
	names := make([]string, 0, len(files))
	for path, content := range files {
		names = append(names, fmt.Sprintf("%s=%q", path, content))
	}
	sort.Strings(names)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads = append(c.loads, fmt.Sprintf("load %s %q %v", name, config, names))
	if name == "broken" {
		return infer.Errorf(infer.Internal, "failed to load 'broken', failed to poll from model repository")
	}
	return nil
}

func (c *fakeCore) Unload(_ context.Context, name string, dependents bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads = append(c.loads, fmt.Sprintf("unload %s %v", name, dependents))
	return nil
}

func (c *fakeCore) SetInstances(_ context.Context, name, group string, count int) ([]models.InstanceState, error) {
	if name == "broken" {
		return nil, infer.Errorf(infer.Unavailable, "instances can be changed in model control mode explicit only")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads = append(c.loads, fmt.Sprintf("instances %s %q %d", name, group, count))
	return []models.InstanceState{{Version: 1, Name: "m_0"}, {Version: 2, Name: "m \"1\"", Draining: true}}, nil
}

// fakeBlocks is an Allocator and an Opener that counts what has not come back.
type fakeBlocks struct {
	account    *memory.Account // nil: nothing is charged
	unproven   atomic.Bool     // nothing is to be had for an announcement alone
	lent, made atomic.Int64
	fail       error
	reuses     bool     // benchmarks keep a block of each size
	reuse      sync.Map // of int to *fakeBlock
}

type fakeBlock struct {
	refs  atomic.Int64
	owner *fakeBlocks
	data  []byte
	real  int // bytes that are charged
}

func (b *fakeBlocks) open(n, arrived int) (Filling, error) {
	if b.fail != nil {
		return nil, b.fail
	}
	if b.unproven.Load() && arrived < n/8 {
		return nil, ErrUnproven
	}
	b.lent.Add(1)
	b.made.Add(1)
	m := &fakeBlock{owner: b, data: make([]byte, n)}
	m.refs.Store(1)
	return m, nil
}

func (m *fakeBlock) Bytes() []byte { return m.data }

func (m *fakeBlock) Grow(n int) error {
	if n > m.real && m.owner.account != nil {
		if err := m.owner.account.Take(memory.Blocks, int64(n-m.real)); err != nil {
			return err
		}
		m.real = n
	}
	return nil
}

func (b *fakeBlocks) allocate(n int) ([]byte, infer.Memory, error) {
	if b.fail != nil {
		return nil, nil, b.fail
	}
	b.lent.Add(1)
	b.made.Add(1)
	if old, ok := b.reuse.LoadAndDelete(n); ok {
		m := old.(*fakeBlock)
		m.refs.Store(1)
		return m.data, m, nil
	}
	m := &fakeBlock{owner: b, data: make([]byte, n)}
	m.refs.Store(1)
	if err := m.Grow(n); err != nil {
		b.lent.Add(-1)
		return nil, nil, err
	}
	return m.data, m, nil
}

func (m *fakeBlock) Retain() { m.refs.Add(1) }
func (m *fakeBlock) Release() {
	switch n := m.refs.Add(-1); {
	case n == 0:
		if m.owner.reuses {
			m.owner.reuse.Store(len(m.data), m)
		} else {
			clear(m.data) // whoever still reads it will notice
		}
		if m.owner.account != nil {
			m.owner.account.Give(memory.Blocks, int64(m.real))
		}
		m.owner.lent.Add(-1)
	case n < 0:
		panic("block released too often")
	}
}

// fakeLog is a LogControl.
type fakeLog struct {
	mu sync.Mutex
	s  LogSettings
}

func (l *fakeLog) LogSettings() LogSettings {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s
}

func (l *fakeLog) ChangeLogSettings(change func(*LogSettings)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.s)
}

// testServer is an HTTP front end that runs over fakes.
type testServer struct {
	*HTTP
	core   *fakeCore
	blocks *fakeBlocks
	addr   string
	stop   func() error // ends Run and returns what it returned
}

// patience is how long a test waits for what must happen.
const patience = time.Minute

// front is what HTTP and GRPC have in common.
type front interface {
	Listen() error
	Run(ctx context.Context) error
}

// runFront has a front end listen and run. cancel ends Run's context; stop does
// too, and returns what Run has.
func runFront(t testing.TB, f front) (cancel context.CancelFunc, stop func() error) {
	t.Helper()
	if err := f.Listen(); err != nil {
		t.Fatalf("Listen: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1) // one value, from Run
	go func() { done <- f.Run(ctx) }()
	return cancel, sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return fmt.Errorf("Run has not returned after %v", patience)
		}
	})
}

// startHTTP runs a front end until the test ends. Afterwards all memory must
// have come back, and nothing may have been logged as an error: a block that is
// released twice is a panic, and that is one.
func startHTTP(t testing.TB, cfg HTTPConfig, core *fakeCore) *testServer {
	t.Helper()
	if core == nil {
		core = newFakeCore()
	}
	cfg.Address = "127.0.0.1"
	log := zerolog.New(errorLog{t}).Level(zerolog.ErrorLevel)
	if core.panics {
		log = zerolog.Nop()
	}
	blocks := &fakeBlocks{account: memory.New(memory.Config{Limit: 1 << 30})}
	h, err := NewHTTP(cfg, Parts{Core: core, Allocate: blocks.allocate, Open: blocks.open, Memory: blocks.account,
		Logging: &fakeLog{s: LogSettings{Info: true, Warning: true, Error: true, Format: LogFormatDefault}}}, log)
	if err != nil {
		t.Fatalf("NewHTTP: %v", err)
	}
	_, stop := runFront(t, h)
	s := &testServer{HTTP: h, core: core, blocks: blocks, addr: h.Addr().String(), stop: stop}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := blocks.lent.Load(); n != 0 {
			t.Errorf("%d blocks have not been released", n)
		}
		if n := h.account.Total(); n != 0 {
			t.Errorf("%d bytes are still charged to the account", n)
		}
	})
	return s
}

func (s *testServer) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until ok, or fails the test.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// replacedModel is a model whose labels are others when its first request runs.
func replacedModel() *fakeModel {
	old, new := model("replaced", 8, "INPUT0 FP32 2", "OUTPUT0 FP32 2"), model("replaced", 8, "INPUT0 FP32 2", "OUTPUT0 FP32 2")
	old.info.Labels = map[string][]string{"OUTPUT0": {"old", "old"}}
	new.info.Labels = map[string][]string{"OUTPUT0": {"new", "new"}}
	new.infer = new.echo
	old.successor = new
	return old
}
