package linked_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/linked"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const patience = 10 * time.Second

// author is a backend that records calls.
type author struct {
	attributes sdk.Attributes
	breaks     string        // the failing hook or instance
	hangs      chan struct{} // blocks Execute until closed, if not nil
	strategic  bool

	mu    sync.Mutex
	notes []string
}

func (a *author) note(format string, args ...any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	a.notes = append(a.notes, text)
	if a.breaks != "" && text == a.breaks {
		return sdk.Errorf(sdk.Unsupported, "%s fails", text)
	}
	return nil
}

// noted returns the calls since heard was last called.
func (a *author) noted() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.notes, ", ")
}

// heard returns the calls since it was last called.
func (a *author) heard() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.notes = nil }()
	return strings.Join(a.notes, ", ")
}

func (a *author) open(env *sdk.BackendEnv) (sdk.Backend, error) {
	return a, a.note("New %s %s", env.Name, env.Settings["k"])
}

func (a *author) Attributes() sdk.Attributes { return a.attributes }
func (a *author) Close()                     { _ = a.note("Close") }

func (a *author) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	env.ReportMemory(5)
	if family, err := env.Metrics.NewFamily(sdk.Counter, "made", ""); err == nil {
		_, _ = family.NewMetric(nil)
	}
	m := &authorModel{author: a, env: env}
	err := a.note("NewModel %v", env.AutoComplete)
	if a.strategic {
		return strategic{m}, err
	}
	return m, err
}

type authorModel struct {
	*author
	env *sdk.ModelEnv
}

func (m *authorModel) Close() { _ = m.note("Model.Close") }

func (m *authorModel) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return &authorInstance{m.author, env}, m.note("NewInstance %s", env.Name)
}

type strategic struct{ *authorModel }

func (strategic) BeginBatch() func(int64) bool { return func(int64) bool { return false } }

type authorInstance struct {
	*author
	env *sdk.InstanceEnv
}

func (in *authorInstance) Ready(context.Context) error { return nil }
func (in *authorInstance) Close()                      { _ = in.note("Instance.Close %s", in.env.Name) }

func (in *authorInstance) Execute(_ context.Context, requests []*sdk.Request) error {
	if in.hangs != nil {
		<-in.hangs
	}
	return errors.New("executed by " + in.env.Name)
}

// events records events as a scheduler would receive them.
type events struct {
	mu        sync.Mutex
	available []string
	lost      []string
}

func (e *events) Available(in backend.Instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.available = append(e.available, in.Name())
}

func (e *events) Lost(in backend.Instance, hopeless bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = append(e.lost, fmt.Sprint(in.Name(), hopeless))
}

func (e *events) heard() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.Sort(e.lost)
	return fmt.Sprint(e.available, e.lost)
}

// groups returns a config with instance groups such as "a2 b1p": name, count, and p for passive.
func groups(text string) *kserve.ModelConfig {
	config := &kserve.ModelConfig{Name: "m"}
	for _, g := range strings.Fields(text) {
		config.InstanceGroup = append(config.InstanceGroup, &kserve.ModelInstanceGroup{
			Name: g[:1], Count: int32(g[1] - '0'), Kind: kserve.ModelInstanceGroup_KIND_CPU, Passive: len(g) > 2,
		})
	}
	return config
}

// opened is a model with its backend and the config that it was opened with.
type opened struct {
	*linked.Model
	backend *linked.Backend
	written *kserve.ModelConfig
}

// open opens a model of the author's backend. The backend is closed with the test.
func open(t *testing.T, a *author, config linked.Config) *opened {
	t.Helper()
	if config.Settings == nil {
		config.Settings = func() (map[string]string, string) { return map[string]string{"k": "v"}, "" }
	}
	b, written := linked.New("b", a.open, config), groups("a1")
	t.Cleanup(b.Close)
	m, err := b.Open(backend.Env{Name: "m", Version: 1, Config: written})
	if err != nil {
		t.Fatal(err)
	}
	return &opened{m.(*linked.Model), b, written}
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAModelComesUpAndGoes(t *testing.T) {
	a, e := &author{}, &events{}
	m := open(t, a, linked.Config{})
	if err := m.Start(t.Context(), groups("a2 b1p"), []byte("{}"), e); err != nil {
		t.Fatal(err)
	}
	want(t, a.heard(), "New b v, NewModel false, NewInstance a_0, NewInstance a_1, NewInstance b_0")
	want(t, e.heard(), "[a_0 a_1] []")
	var names []string
	for _, in := range m.Instances() {
		member := in.Capabilities().GroupMember
		names = append(names, fmt.Sprint(in.Name(), member.Group().GetName(), member.Device()))
	}
	want(t, fmt.Sprint(names), "[a_0a0 a_1a0 b_0b0]")
	if c := m.Capabilities(); !c.AsksReady() || c.ReportMemory() != 5 || c.Strategy() != nil {
		t.Errorf("AsksReady is %v and ReportMemory %d, want true and 5, and no strategy", c.AsksReady(), c.ReportMemory())
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want(t, e.heard(), "[a_0 a_1] [a_0true a_1true]")
	text := a.heard()
	if !strings.HasSuffix(text, ", Model.Close") || strings.Count(text, "Instance.Close") != 3 {
		t.Errorf("got %s, want three instances closed and then the model", text)
	}
	m.backend.Close()
	want(t, a.heard(), "Close")
	if _, err := m.backend.Open(backend.Env{Name: "m"}); err == nil {
		t.Error("a closed backend opens a model")
	}
}

// TestTheModelThatCompletesTheConfigIsTheOneThatRuns checks that the model that completed the
// config also runs it.
func TestTheModelThatCompletesTheConfigIsTheOneThatRuns(t *testing.T) {
	a := &author{}
	m := open(t, a, linked.Config{})
	if answer, err := m.AutoComplete(t.Context(), []byte(`{"name":"m"}`)); answer != nil || err != nil {
		t.Errorf("got %s, %v, want nothing", answer, err)
	}
	if err := m.Start(t.Context(), groups("a1"), []byte("{}"), &events{}); err != nil {
		t.Fatal(err)
	}
	want(t, a.heard(), "New b v, NewModel true, NewInstance a_0")
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAStartThatFailsLeavesNothing checks that a failed start closes everything it created and
// removes its metrics.
func TestAStartThatFailsLeavesNothing(t *testing.T) {
	for breaks, left := range map[string]string{
		"NewModel false":  "New b v, NewModel false",
		"NewInstance a_1": "New b v, NewModel false, NewInstance a_0, NewInstance a_1, Instance.Close a_0, Model.Close",
	} {
		t.Run(breaks, func(t *testing.T) {
			a, e := &author{breaks: breaks}, &events{}
			registry := metrics.New(metrics.Config{})
			m := open(t, a, linked.Config{Metrics: func(model string) linked.CustomMetrics { return registry.Custom(model) }})
			err := m.Start(t.Context(), groups("a3"), []byte("{}"), e)
			if err == nil || infer.AsError(err).Code != infer.Unsupported || err.Error() != breaks+" fails" {
				t.Errorf("got %v, want that %s fails", err, breaks)
			}
			want(t, a.heard(), left)
			want(t, e.heard(), "[] []")
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			want(t, a.heard(), "")
			shown := httptest.NewRecorder()
			registry.Handler().ServeHTTP(shown, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
			if strings.Contains(shown.Body.String(), "made") {
				t.Error("a metric of a model that has not come up is shown")
			}
		})
	}
	t.Run("New", func(t *testing.T) {
		a := &author{breaks: "New b v"}
		b := linked.New("b", a.open, linked.Config{Settings: func() (map[string]string, string) { return map[string]string{"k": "v"}, "" }})
		defer b.Close()
		if _, err := b.Open(backend.Env{Name: "m"}); err == nil || err.Error() != "New b v fails" {
			t.Errorf("got %v", err)
		}
		a.breaks = ""
		if _, err := b.Open(backend.Env{Name: "m"}); err != nil {
			t.Errorf("a second attempt: got %v, want none", err)
		}
	})
	t.Run("too many instances", func(t *testing.T) {
		m := open(t, &author{}, linked.Config{MaxInstances: 2})
		if err := m.Start(t.Context(), groups("a3"), nil, &events{}); err == nil || err.Error() != "instance group a of model m asks for 3 instances, a model has 2 at most" {
			t.Errorf("got %v", err)
		}
	})
}

// TestInstancesMadeAtTheSameTime checks that if one of several parallel instances fails, the others
// and the model are closed.
func TestInstancesMadeAtTheSameTime(t *testing.T) {
	a := &author{attributes: sdk.Attributes{ParallelInstances: true}, breaks: "NewInstance a_2"}
	m := open(t, a, linked.Config{})
	if err := m.Start(t.Context(), groups("a4"), nil, &events{}); err == nil || err.Error() != "NewInstance a_2 fails" {
		t.Errorf("got %v, want that the third one fails", err)
	}
	testkit.Eventually(t, patience, func() bool {
		text := a.noted()
		return strings.Count(text, "NewInstance") == strings.Count(text, "Instance.Close")+1 && strings.Contains(text, "Model.Close")
	})
}

func TestInstancesAreExchanged(t *testing.T) {
	a, e := &author{}, &events{}
	m := open(t, a, linked.Config{})
	if err := m.Start(t.Context(), groups("a2"), nil, e); err != nil {
		t.Fatal(err)
	}
	a.heard()
	a.breaks = "NewInstance a_3"
	if _, _, err := m.Grow(t.Context(), groups("a4"), nil); err == nil || err.Error() != "NewInstance a_3 fails" {
		t.Errorf("got %v, want that the fourth one fails", err)
	}
	want(t, a.heard(), "NewInstance a_2, NewInstance a_3, Instance.Close a_2")
	if n := len(m.Instances()); n != 2 {
		t.Errorf("got %d instances after a failure, want 2", n)
	}
	added, surplus, err := m.Grow(t.Context(), groups("b1 c1p"), nil)
	if err != nil || len(added) != 1 || added[0].Name() != "c_0" || len(surplus) != 1 || surplus[0].Name() != "a_1" {
		t.Fatalf("got %v, %v, %v, want c_0 added and a_1 surplus", added, surplus, err)
	}
	m.Leave(surplus[0])
	if n := len(m.Instances()); n != 2 {
		t.Errorf("got %d instances, want 2", n)
	}
	if err := m.End(t.Context(), surplus[0]); err != nil {
		t.Error(err)
	}
	want(t, a.heard(), "NewInstance c_0, Instance.Close a_1")
	want(t, e.heard(), "[a_0 a_1] [a_1true]")
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := m.Grow(t.Context(), groups("a9"), nil); err == nil {
		t.Error("a closed model grows")
	}
}

// TestGroupsThatTheBackendPrefers checks that the backend's preferred instance groups are available
// before its first model.
func TestGroupsThatTheBackendPrefers(t *testing.T) {
	a := &author{attributes: sdk.Attributes{Groups: []sdk.Group{{Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: 2}}}}
	b := linked.New("b", a.open, linked.Config{})
	got := b.Groups()
	if len(got) != 1 || got[0].GetKind() != kserve.ModelInstanceGroup_KIND_CPU || got[0].GetCount() != 2 {
		t.Errorf("got %v, want two on the CPU", got)
	}
	b.Close()
	if got := b.Groups(); got != nil {
		t.Errorf("a closed backend prefers %v", got)
	}
}

// TestStrategiesAreAskedForBeforeStart checks that a strategy is available before Start, and only
// for models with dynamic_batching.
func TestStrategiesAreAskedForBeforeStart(t *testing.T) {
	a := &author{strategic: true}
	m := open(t, a, linked.Config{})
	if m.Capabilities().Strategy() != nil {
		t.Error("a model without dynamic_batching has a strategy")
	}
	m.written.SchedulingChoice = &kserve.ModelConfig_DynamicBatching{DynamicBatching: &kserve.ModelDynamicBatching{}}
	s := m.Capabilities().Strategy()
	if s == nil || s.Begin()(&infer.Request{}) {
		t.Errorf("got strategy %v, want that of the author", s)
	}
	if err := m.Start(t.Context(), groups("a1"), nil, &events{}); err != nil {
		t.Fatal(err)
	}
	want(t, a.heard(), "New b v, NewModel false, NewInstance a_0")
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}

	failing := open(t, &author{breaks: "NewModel false"}, linked.Config{})
	failing.written.SchedulingChoice = m.written.SchedulingChoice
	if failing.Capabilities().Strategy() != nil {
		t.Error("a model that was not made has a strategy")
	}
	if err := failing.Start(t.Context(), groups("a1"), nil, &events{}); err == nil || err.Error() != "NewModel false fails" {
		t.Errorf("got %v, want that NewModel fails", err)
	}
}

// TestCodeThatDoesNotReturn checks that a forced Close abandons an Execute that does not return.
// The model is closed once it returns.
func TestCodeThatDoesNotReturn(t *testing.T) {
	var log testkit.Buffer
	a := &author{hangs: make(chan struct{})}
	m := open(t, a, linked.Config{Log: zerolog.New(&log)})
	if err := m.Start(t.Context(), groups("a1"), nil, &events{}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan *infer.Response, 1)
	done := make(chan backend.Report, 1)
	m.Instances()[0].Execute(&backend.Batch{
		Tasks: []*backend.Task{{Context: t.Context(), Request: &infer.Request{}, Send: func(r *infer.Response) { answered <- r }}},
		Done:  func(_ *backend.Batch, r backend.Report) { done <- r },
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Close(over); err == nil || !strings.Contains(err.Error(), "instance 'a_0' does not return") {
		t.Errorf("got %v, want that it does not return", err)
	}
	if r := <-answered; r.Err == nil {
		t.Errorf("got %+v, want an error", r)
	}
	if report := <-done; report.Err == nil {
		t.Errorf("got report %+v, want an error", report)
	}
	if !strings.Contains(log.String(), "does not return, its goroutine keeps running") {
		t.Errorf("got the log %s", log.String())
	}
	m.backend.Close()
	if !strings.Contains(log.String(), "backend 'b' is not closed, because 1 of its models have not returned") || strings.Contains(a.heard(), "Close") {
		t.Errorf("the backend is closed before its model: %s", log.String())
	}
	close(a.hangs)
	testkit.Eventually(t, patience, func() bool {
		m.backend.Close() // does nothing until the model is closed
		return strings.HasSuffix(a.noted(), ", Close")
	})
	want(t, a.heard(), "Instance.Close a_0, Model.Close, Close")
}
