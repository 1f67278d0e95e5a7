package models_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// growing is a backend whose models can exchange their instances.
type growing struct {
	mu        sync.Mutex
	opened    int
	models    []*growingModel
	refuse    error                  // the error that Grow returns
	answer    map[string]error       // errors of executions, by instance name
	ending    func(*growingInstance) // called before an instance ends
	leaving   func(*growingInstance) // called when an instance leaves
	returning func()                 // called when an execution has sent its responses
	long      int                    // number of running executions of "long" requests
}

func (b *growing) Open(backend.Env) (backend.Model, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	m := &growingModel{backend: b}
	b.models = append(b.models, m)
	return m, nil
}

func (b *growing) count(change int) {
	b.mu.Lock()
	b.long += change
	b.mu.Unlock()
}

// growingModel identifies its instances by their names.
type growingModel struct {
	backend *growing
	events  backend.Events

	mu        sync.Mutex
	instances []*growingInstance
	ended     []string
}

func (m *growingModel) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (m *growingModel) make(config *kserve.ModelConfig) (all, added, surplus []*growingInstance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	surplus = slices.Clone(m.instances)
	for _, g := range config.GetInstanceGroup() {
		for i := range g.GetCount() {
			name := fmt.Sprintf("%s_%d", g.GetName(), i)
			if at := slices.IndexFunc(surplus, func(in *growingInstance) bool { return in.name == name }); at >= 0 {
				all = append(all, surplus[at])
				surplus = slices.Delete(surplus, at, at+1)
				continue
			}
			in := &growingInstance{model: m, name: name, group: g}
			all, added = append(all, in), append(added, in)
		}
	}
	return all, added, surplus
}

func (m *growingModel) Start(_ context.Context, config *kserve.ModelConfig, _ []byte, events backend.Events) error {
	m.events = events
	m.instances, _, _ = m.make(config)
	for _, in := range m.instances {
		if !in.group.GetPassive() {
			events.Available(in)
		}
	}
	return nil
}

func (m *growingModel) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{Exchanger: m}
}

func (m *growingModel) Grow(_ context.Context, config *kserve.ModelConfig, _ []byte) (added, surplus []backend.Instance, err error) {
	all, fresh, left := m.make(config)
	for _, in := range fresh {
		m.events.Available(in)
		added = append(added, in)
	}
	m.backend.mu.Lock()
	refuse := m.backend.refuse
	m.backend.mu.Unlock()
	if refuse != nil {
		for _, in := range fresh {
			m.events.Lost(in, true)
		}
		return nil, nil, refuse
	}
	for _, in := range left {
		surplus = append(surplus, in)
	}
	m.mu.Lock()
	m.instances = append(all, left...)
	m.mu.Unlock()
	return added, surplus, nil
}

func (m *growingModel) Leave(in backend.Instance) {
	if f := m.backend.leaving; f != nil {
		f(in.(*growingInstance))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instances = slices.DeleteFunc(m.instances, func(other *growingInstance) bool { return other == in })
}

func (m *growingModel) End(_ context.Context, in backend.Instance) error {
	m.Leave(in)
	if f := m.backend.ending; f != nil {
		f(in.(*growingInstance))
	}
	m.events.Lost(in, true)
	m.mu.Lock()
	m.ended = append(m.ended, in.Name())
	m.mu.Unlock()
	return nil
}

func (m *growingModel) Instances() []backend.Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []backend.Instance
	for _, in := range m.instances {
		list = append(list, in)
	}
	return list
}

func (m *growingModel) Close(context.Context) error { return nil }

// left returns the names of the ended instances.
func (m *growingModel) left() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.ended)
	return strings.Join(m.ended, " ")
}

// growingInstance executes requests with the id "long" until they are cancelled, and others at
// once.
type growingInstance struct {
	model *growingModel
	name  string
	group *kserve.ModelInstanceGroup
}

func (in *growingInstance) Name() string                      { return in.name }
func (in *growingInstance) Ready(context.Context) error       { return nil }
func (in *growingInstance) Group() *kserve.ModelInstanceGroup { return in.group }
func (in *growingInstance) Device() int32                     { return 0 }

func (in *growingInstance) Capabilities() backend.Capabilities {
	return backend.Capabilities{GroupMember: in}
}

func (in *growingInstance) Execute(b *backend.Batch) {
	go func() {
		in.model.backend.mu.Lock()
		err := in.model.backend.answer[in.name]
		in.model.backend.mu.Unlock()
		start := backend.Now()
		for _, task := range b.Tasks {
			if task.Request.ID == "long" {
				in.model.backend.count(1)
				<-task.Context.Done()
				in.model.backend.count(-1)
			}
			response := &infer.Response{Final: true, Parameters: []infer.Parameter{{Name: "instance", Kind: infer.StringParameter, String: in.name}}}
			if err != nil {
				response = infer.ErrorResponse(err)
			}
			task.Send(response)
		}
		if f := in.model.backend.returning; f != nil {
			f()
		}
		b.Done(b, backend.Report{Start: start, ComputeStart: start, ComputeEnd: start, End: start, Executed: true})
	}()
}

// grower is a registry with one model, "m", whose instances can be exchanged.
type grower struct {
	t       *testing.T
	backend *growing
	*models.Registry
	file string
	wait sync.WaitGroup
}

// version returns the serving version.
func (g *grower) version() *version.Version {
	g.t.Helper()
	found, err := g.Target("m", 1)
	if err != nil {
		g.t.Fatal(err)
	}
	return found.(*version.Version)
}

func newGrower(t *testing.T, config string, change func(*models.RegistryConfig)) *grower {
	t.Helper()
	root := writeModels(t, map[string][]int64{"m": {1}})
	g := &grower{t: t, backend: &growing{answer: make(map[string]error)}, file: filepath.Join(root, "m", "config.pbtxt")}
	g.write(config)
	g.Registry = newTestRegistry(t, root, g.backend, func(c *models.RegistryConfig) {
		explicit("m")(c)
		if change != nil {
			change(c)
		}
	})
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *grower) write(more string) {
	g.t.Helper()
	rewrite(g.t, g.file, fakeConfig+more)
}

// groups returns a config with instance groups, given as name and count: "a2".
func groups(list ...string) map[string]any {
	var all []any
	for _, g := range list {
		all = append(all, map[string]any{"name": g[:1], "count": int(g[1] - '0'), "kind": "KIND_CPU"})
	}
	return map[string]any{"instance_group": all}
}

// present returns how often the model was opened and its present instances.
func (g *grower) present() string {
	g.backend.mu.Lock()
	opened, m := g.backend.opened, g.backend.models[len(g.backend.models)-1]
	g.backend.mu.Unlock()
	var names []string
	for _, in := range m.Instances() {
		names = append(names, in.Name())
	}
	return fmt.Sprintf("%d: %s", opened, strings.Join(names, " "))
}

func (g *grower) want(what, present string) {
	g.t.Helper()
	if got := g.present(); got != present {
		g.t.Errorf("%s: got %q, want %q", what, got, present)
	}
}

// long keeps n instances busy until end is called, and returns when they are executing. It is not
// enough that the requests are in flight: a request that arrives just before an instance becomes
// idle waits for that instance.
func (g *grower) long(n int) (end func()) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	for range n {
		g.wait.Go(func() { _, _ = g.send(ctx, "long") })
	}
	begun := 0
	if !testkit.Within(patience, func() bool {
		g.backend.mu.Lock()
		defer g.backend.mu.Unlock()
		begun = g.backend.long
		return begun == n
	}) {
		g.t.Fatalf("%d are executed, want %d", begun, n)
	}
	return func() {
		cancel()
		g.wait.Wait()
	}
}

func (g *grower) wantEnded(m *growingModel, names string) {
	g.t.Helper()
	if !testkit.Within(patience, func() bool { return m.left() == names }) {
		g.t.Errorf("ended have %q, want %q", m.left(), names)
	}
}

func (g *grower) send(ctx context.Context, id string) (instance string, err error) {
	refused := g.Infer(ctx, &infer.Request{
		ID: id, Model: "m", Version: infer.LatestVersion,
		Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}},
	}, func(r *infer.Response) {
		if r.Err != nil {
			err = r.Err
		} else if len(r.Parameters) > 0 {
			instance = r.Parameters[0].String
		}
	})
	return instance, errors.Join(err, refused)
}

// config returns the instance groups that the config endpoint shows.
func (g *grower) config() string {
	g.t.Helper()
	info, err := g.Model("m", 1)
	if err != nil {
		g.t.Fatal(err)
	}
	var list []string
	for _, group := range info.Config.GetInstanceGroup() {
		list = append(list, fmt.Sprintf("%s%d", group.GetName(), group.GetCount()))
		if !strings.Contains(string(info.JSON), fmt.Sprintf(`"count":%d`, group.GetCount())) {
			g.t.Errorf("the JSON of the config does not have %d instances: %s", group.GetCount(), info.JSON)
		}
	}
	return strings.Join(list, " ")
}

const twoOfA = `instance_group [ { name: "a" count: 2 kind: KIND_CPU } ]`

// TestLoadsExchangeInstances checks that a load that changes only instance groups exchanges
// instances without reloading the model.
func TestLoadsExchangeInstances(t *testing.T) {
	g := newGrower(t, twoOfA, nil)
	load := func(list ...string) error {
		config := groups(list...)
		delete(config, "parameters")
		return g.Load(t.Context(), "m", strings.Replace(configWith(t, "", config), `"parameters":{"tag":{"string_value":""}},`, "", 1), nil)
	}
	if _, err := g.send(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if err := load("a3", "b1"); err != nil {
		t.Fatal(err)
	}
	g.want("more", "1: a_0 a_1 a_2 b_0")
	if got := g.config(); got != "a3 b1" {
		t.Errorf("the config has %s", got)
	}
	testkit.Eventually(t, patience, func() bool { // counted when the execution ends, which is after the response
		all, err := g.Statistics("m", 1)
		return err == nil && all[0].InferenceCount == 1
	})

	// Surplus instances end when their requests are finished.
	end := g.long(4)
	if err := load("b1"); err != nil {
		t.Fatal(err)
	}
	g.want("less", "1: b_0")
	model := g.backend.models[0]
	if got := model.left(); got != "" {
		t.Errorf("%s have ended while they execute", got)
	}
	end()
	g.wantEnded(model, "a_0 a_1 a_2")
	for range 8 {
		if by, err := g.send(t.Context(), ""); by != "b_0" || err != nil {
			t.Errorf("%q answered, %v", by, err)
		}
	}

	// A failed load changes nothing.
	g.backend.mu.Lock()
	g.backend.refuse = infer.Errorf(infer.Internal, "no room")
	g.backend.mu.Unlock()
	wantError(t, load("b2"), infer.InvalidArg, "load failed for model 'm': version 1 is at READY state: Internal: no room;\n")
	g.backend.mu.Lock()
	g.backend.refuse = nil
	g.backend.mu.Unlock()
	g.want("after a failure", "1: b_0")
	if got := g.config(); got != "b1" {
		t.Errorf("the config has %s", got)
	}
	if _, err := g.send(t.Context(), ""); err != nil {
		t.Error(err)
	}

	// Changes in the repository's own config exchange instances too; other changes reload.
	g.write(twoOfA)
	if err := g.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	g.want("from the file", "1: a_0 a_1")
	g.write(twoOfA + "max_batch_size: 0 metric_tags { key: \"a\" value: \"b\" }")
	if err := g.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	g.want("something else too", "2: a_0 a_1")
	g.write(`instance_group [ { name: "a" count: 1 kind: KIND_CPU passive: true } ] metric_tags { key: "a" value: "b" }`)
	if err := g.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	g.want("nothing but passive ones", "3: a_0")
	_, err := g.send(t.Context(), "")
	if text := "model 'm' has only passive instances, which take no requests"; infer.AsError(err).Message != text {
		t.Errorf("got %v, want %q", err, text)
	}
}

func TestSetInstancesChangesOneGroup(t *testing.T) {
	g := newGrower(t, twoOfA, nil)
	set := func(group string, n int) string {
		states, err := g.SetInstances(t.Context(), "m", group, n)
		if err != nil {
			return err.Error()
		}
		var list []string
		for _, s := range states {
			list = append(list, fmt.Sprintf("%d:%s", s.Version, s.Name))
			if s.Draining {
				list[len(list)-1] += "!"
			}
		}
		return strings.Join(list, " ")
	}
	if got := set("", 3); got != "1:a_0 1:a_1 1:a_2" {
		t.Errorf("got %s", got)
	}
	end := g.long(3)
	if got := set("a", 1); got != "1:a_0 1:a_1! 1:a_2!" {
		t.Errorf("got %s", got)
	}
	// Instances that are draining are not used again.
	if got := set("a", 2); got != "1:a_0 1:a_1" {
		t.Errorf("got %s", got)
	}
	if by, err := g.send(t.Context(), ""); by != "a_1" || err != nil {
		t.Errorf("%q answered, %v", by, err)
	}
	end()
	g.wantEnded(g.backend.models[0], "a_1 a_2")
	if got := set("", 2); got != "1:a_0 1:a_1" {
		t.Errorf("the same count again: got %s", got)
	}

	// A load that finds no change keeps the count; a load that finds one sets it.
	if err := g.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	if got := g.config(); got != "a2" {
		t.Errorf("the config has %s", got)
	}
	if got := set("", 5); got != "1:a_0 1:a_1 1:a_2 1:a_3 1:a_4" {
		t.Errorf("got %s", got)
	}
	g.write(twoOfA)
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(g.file, later, later); err != nil {
		t.Fatal(err)
	}
	if err := g.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	g.want("a file that was touched", "1: a_0 a_1")

	for _, test := range []struct {
		model, group string
		count        int
		want         string
	}{
		{"m", "x", 1, "instances of model 'm': 'group' is \"x\", want 'a'"},
		{"m", "", 0, "instances of model 'm': 'count' is 0, want a whole number from 1 to 1024"},
		{"m", "", 1025, "instances of model 'm': 'count' is 1025, want a whole number from 1 to 1024"},
		{"n", "", 1, "Request for unknown model: 'n' is not found"},
	} {
		if _, err := g.SetInstances(t.Context(), test.model, test.group, test.count); err == nil || infer.AsError(err).Message != test.want {
			t.Errorf("%v: got %v", test, err)
		}
	}
	g.backend.mu.Lock()
	g.backend.refuse = infer.Errorf(infer.Internal, "no room")
	g.backend.mu.Unlock()
	if got := set("", 3); got != "no room" {
		t.Errorf("got %s", got)
	}
	g.want("after a failure", "1: a_0 a_1")
}

// TestSetInstancesNeedsAGroup checks that a request must name a group if the model has several.
func TestSetInstancesNeedsAGroup(t *testing.T) {
	g := newGrower(t, `instance_group [ { name: "a" count: 2 kind: KIND_CPU }, { name: "b" count: 1 kind: KIND_CPU } ]`, nil)
	_, err := g.SetInstances(t.Context(), "m", "", 1)
	wantError(t, err, infer.InvalidArg, "instances of model 'm': 'group' is missing, want 'a' or 'b'")
	_, err = g.SetInstances(t.Context(), "m", "c", 1)
	wantError(t, err, infer.InvalidArg, "instances of model 'm': 'group' is \"c\", want 'a' or 'b'")
	if _, err = g.SetInstances(t.Context(), "m", "b", 2); err != nil || g.config() != "a2 b2" {
		t.Errorf("got %v, the config has %s", err, g.config())
	}
}

func TestSetInstancesIsRefused(t *testing.T) {
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), nil)
	_, err := r.SetInstances(t.Context(), "m", "", 2)
	wantError(t, err, infer.Unavailable, "instances can be changed in model control mode explicit only")

	r = startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), explicit("m"))
	_, err = r.SetInstances(t.Context(), "m", "", 2)
	wantError(t, err, infer.InvalidArg, "instances of model 'm': they cannot be changed while it serves")
}

// TestNewInstancesAreWarmedUp checks that new instances are warmed up before they serve and are
// removed if that fails.
func TestNewInstancesAreWarmedUp(t *testing.T) {
	g := newGrower(t, twoOfA+sampleOf("batch_size: 1 count: 2", "IN", "INT32", "1", "zero_data: true"), nil)
	count := func() uint64 {
		all, err := g.Statistics("m", 1)
		if err != nil {
			t.Fatal(err)
		}
		return all[0].InferenceCount
	}
	if got := count(); got != 4 {
		t.Errorf("%d inferences after the load, want 4", got)
	}
	g.backend.mu.Lock()
	g.backend.answer["a_3"] = errors.New("cold")
	g.backend.mu.Unlock()
	if _, err := g.SetInstances(t.Context(), "m", "", 4); err == nil || infer.AsError(err).Message != "failed to run warmup sample 's': cold; " {
		t.Errorf("got %v", err)
	}
	g.want("a warm-up failed", "1: a_0 a_1")
	if got := g.backend.models[0].left(); got != "a_2 a_3" {
		t.Errorf("%s have ended", got)
	}
	l := g.version()
	if n := l.Barrier().Known(); n != 2 {
		t.Errorf("the barrier knows %d instances, want 2", n)
	}
	l.Barrier().Settle() // the other new instance may still be warming up
	before := count()
	if _, err := g.SetInstances(t.Context(), "m", "", 3); err != nil {
		t.Fatal(err)
	}
	if got := count() - before; got != 2 {
		t.Errorf("%d inferences more, want 2", got)
	}
}

// TestRateLimiterFollowsInstances checks that the rate limiter follows all changes of instances.
func TestRateLimiterFollowsInstances(t *testing.T) {
	const one, three = `rate_limiter { resources [ { name: "R" count: 1 } ] }`, `rate_limiter { resources [ { name: "R" count: 3 } ] }`
	group := func(limit string) string {
		return `instance_group [ { name: "a" count: 2 kind: KIND_CPU ` + limit + ` } ]`
	}
	g := newGrower(t, group(one), func(c *models.RegistryConfig) {
		c.Limiter = ratelimit.New([]ratelimit.Resource{{Name: "R", Count: 2, Device: ratelimit.AnyDevice}})
	})
	end := g.long(2)
	if _, err := g.SetInstances(t.Context(), "m", "", 1); err != nil {
		t.Fatal(err)
	}
	end()
	g.wantEnded(g.backend.models[0], "a_1")
	if by, err := g.send(t.Context(), ""); by != "a_0" || err != nil {
		t.Errorf("%q answered, %v", by, err)
	}
	g.write(group(three))
	wantError(t, g.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at READY state: "+
		"Invalid argument: Resource count for \"R\" is limited to 2 which will prevent scheduling of one or more model instances, the minimum required count is 3;\n")
	g.want("what needs too much", "1: a_0")
}
