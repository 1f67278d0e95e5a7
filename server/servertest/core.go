package servertest

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
)

// Core is a fake models.Registry. It validates only names.
type Core struct {
	mu      sync.Mutex
	Models  map[string]*Model
	Down    error // the error of Live and Ready
	Unready bool  // not ready

	Loads   []string                                     // loads, unloads and changes
	Listed  []*kserve.RepositoryIndexResponse_ModelIndex // the result of Index; nil: three models of its own
	OnLoad  func(ctx context.Context, name, config string, files map[string][]byte) error
	Panics  bool         // a handler may panic
	Served  atomic.Int64 // inferences
	lastReq *infer.Request
}

// NewCore returns a Core with the models of the comparison with Triton.
func NewCore(more ...*Model) *Core {
	c := &Core{Models: map[string]*Model{}}
	for d := infer.Bool; d <= infer.BF16; d++ {
		more = append(more, NewModel("id_"+strings.ToLower(d.String()), 0, "INPUT0 "+d.String()+" -1", "OUTPUT0 "+d.String()+" -1"))
	}
	classes := NewModel("classes", 8, "INPUT0 FP32 4", "OUTPUT0 FP32 4")
	classes.Labels = "cat\ndog\n\nhorse\n"
	classes.Info.Labels = map[string][]string{"OUTPUT0": {"cat", "dog", "", "horse"}}
	fails := NewModel("fails", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	fails.Infer = func(_ context.Context, _ *infer.Request, send infer.Sender) error {
		send(infer.ErrorResponse(infer.Errorf(infer.Unavailable, "it fails: \"ü\" /x")))
		return nil
	}
	decoupled := NewModel("decoupled", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	decoupled.Info.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	more = append(more, classes, fails, decoupled,
		NewModel("batch", 8, "INPUT0 FP32 4", "OUTPUT0 FP32 4"),
		NewModel("multi", 0, "INPUT0 INT32 -1 optional", "INPUT1 FP32 -1 optional", "INPUT2 BYTES -1 optional", "INPUT3 BOOL -1 optional",
			"OUTPUT0 INT32 -1", "OUTPUT1 FP32 -1", "OUTPUT2 BYTES -1", "OUTPUT3 BOOL -1"))
	for _, m := range more {
		if m.Infer == nil {
			m.Infer = m.Echo
		}
		c.Models[m.Info.Name] = m
	}
	return c
}

func (c *Core) find(name string, version int64) (*Model, error) {
	m := c.Models[name]
	if m == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", name)
	}
	if version != infer.LatestVersion && version != 1 {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' version %d is not found", name, version)
	}
	if m.replaced.Load() {
		return m.Successor, nil
	}
	return m, nil
}

// Target implements server.Core.
func (c *Core) Target(name string, version int64) (models.Target, error) {
	m, err := c.find(name, version)
	if err != nil {
		return nil, err
	}
	return target{c, m}, nil
}

// target is one model of a Core. It may be replaced before it has run anything.
type target struct {
	c *Core
	m *Model
}

func (t target) Info() *models.Info { return t.m.Info }

func (t target) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	c, m := t.c, t.m
	if m.Successor != nil {
		m.replaced.Store(true)
		return models.ErrReplaced
	}
	if err := req.Localize(ctx); err != nil { // as the registry does
		return err
	}
	c.Served.Add(1)
	c.mu.Lock()
	copied := *req
	copied.Inputs = slices.Clone(req.Inputs)
	c.lastReq = &copied
	c.mu.Unlock()
	if req.Entered != nil && !m.Enters {
		req.Entered()
	}
	return m.Infer(ctx, req, send)
}

// Last returns the last executed request.
func (c *Core) Last() *infer.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastReq
}

// Live implements server.Core, with Ready, ReadyVersions and Model.
func (c *Core) Live() (bool, error)                 { return c.Down == nil, c.Down }
func (c *Core) Ready(context.Context) (bool, error) { return !c.Unready, c.Down }
func (c *Core) ReadyVersions(string) []int64        { return []int64{1} }
func (c *Core) Model(name string, version int64) (*models.Info, error) {
	m, err := c.find(name, version)
	if err != nil {
		return nil, err
	}
	return m.Info, nil
}

// ModelReady implements server.Core.
func (c *Core) ModelReady(_ context.Context, name string, version int64) (bool, error) {
	_, err := c.find(name, version)
	return name != "fails", err
}

// Statistics implements server.Core.
func (c *Core) Statistics(name string, version int64) ([]*kserve.ModelStatistics, error) {
	if name == "" {
		return []*kserve.ModelStatistics{Statistics("a"), {Name: "b", Version: "2"}}, nil
	}
	if c.Models[name] == nil {
		return nil, infer.Errorf(infer.InvalidArg, "requested model '%s' is not available", name)
	}
	if version > 1 {
		return nil, infer.Errorf(infer.InvalidArg, "requested model version is not available for model '%s'", name)
	}
	return []*kserve.ModelStatistics{{Name: name, Version: "1"}}, nil
}

// Statistics returns statistics of a model with a different number in each member.
func Statistics(name string) *kserve.ModelStatistics {
	d := func(n uint64) *kserve.StatisticDuration { return &kserve.StatisticDuration{Count: n, Ns: 10 * n} }
	return &kserve.ModelStatistics{Name: name, Version: "1", LastInference: 1700000000000, InferenceCount: 12, ExecutionCount: 5,
		InferenceStats: &kserve.InferStatistics{Success: d(1), Fail: d(2), Queue: d(3), ComputeInput: d(4), ComputeInfer: d(5),
			ComputeOutput: d(6), CacheHit: d(7), CacheMiss: d(8)},
		BatchStats: []*kserve.InferBatchStatistics{{BatchSize: 4, ComputeInput: d(1), ComputeInfer: d(2), ComputeOutput: d(3)}, {BatchSize: 8}},
		ResponseStats: map[string]*kserve.InferResponseStatistics{
			"0": {ComputeInfer: d(1), ComputeOutput: d(2), Success: d(3), Fail: d(4), EmptyResponse: d(5), Cancel: d(6)}},
		MemoryUsage: []*kserve.MemoryUsage{{Type: "CPU", Id: 0, ByteSize: 64}}}
}

// Index implements server.Core.
func (c *Core) Index(ready bool) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	if c.Listed != nil {
		return c.Listed, nil
	}
	list := []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "a", Version: "1", State: "READY"}}
	if !ready {
		list = append(list, &kserve.RepositoryIndexResponse_ModelIndex{Name: "b", Version: "2", State: "UNAVAILABLE", Reason: "unloaded"},
			&kserve.RepositoryIndexResponse_ModelIndex{Name: "c"})
	}
	return list, nil
}

// Load implements server.Core.
func (c *Core) Load(ctx context.Context, name, config string, files map[string][]byte) error {
	if c.OnLoad != nil {
		return c.OnLoad(ctx, name, config, files)
	}
	names := make([]string, 0, len(files))
	for path, content := range files {
		names = append(names, fmt.Sprintf("%s=%q", path, content))
	}
	sort.Strings(names)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Loads = append(c.Loads, fmt.Sprintf("load %s %q %v", name, config, names))
	if name == "broken" {
		return infer.Errorf(infer.Internal, "failed to load 'broken', failed to poll from model repository")
	}
	return nil
}

// Unload implements server.Core.
func (c *Core) Unload(_ context.Context, name string, dependents bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Loads = append(c.Loads, fmt.Sprintf("unload %s %v", name, dependents))
	return nil
}

// SetInstances implements server.Core.
func (c *Core) SetInstances(_ context.Context, name, group string, count int) ([]models.InstanceState, error) {
	if name == "broken" {
		return nil, infer.Errorf(infer.Unavailable, "instances can be changed in model control mode explicit only")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Loads = append(c.Loads, fmt.Sprintf("instances %s %q %d", name, group, count))
	return []models.InstanceState{{Version: 1, Name: "m_0"}, {Version: 2, Name: "m \"1\"", Draining: true}}, nil
}
