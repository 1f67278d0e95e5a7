package process_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// groupsOf returns a config with the given groups.
func groupsOf(t *testing.T, config *kserve.ModelConfig, groups ...*kserve.ModelInstanceGroup) (*kserve.ModelConfig, []byte) {
	t.Helper()
	changed := modelConfig(config.Name, 1, infer.Uint8)
	changed.InstanceGroup = groups
	text, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	return changed, text
}

func (m *running) names() string {
	var names []string
	for _, in := range m.model.Instances() {
		names = append(names, in.Name())
	}
	return strings.Join(names, " ")
}

func (f *fakeEvents) counted() (ups, downs int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ups, f.downs
}

// TestInstancesGrowWhileTheModelServes adds and removes instances while the model serves.
func TestInstancesGrowWhileTheModelServes(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	config := modelConfig("identity", 1, infer.Uint8)
	kept := m.pid()
	cpu := func(n int32, passive bool) *kserve.ModelInstanceGroup {
		return &kserve.ModelInstanceGroup{Name: "identity_0", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: n, Passive: passive}
	}
	exchanger := m.model.Capabilities().Exchanger
	grow := func(groups ...*kserve.ModelInstanceGroup) (added, surplus []backend.Instance, err error) {
		c, text := groupsOf(t, config, groups...)
		return exchanger.Grow(t.Context(), c, text)
	}

	added, surplus, err := grow(cpu(3, false))
	if err != nil || len(added) != 2 || len(surplus) != 0 || m.names() != "identity_0_0 identity_0_1 identity_0_2" {
		t.Fatalf("got %v added, %v surplus, %v, in all %s", added, surplus, err, m.names())
	}
	if ups, _ := m.events.counted(); ups != 3 {
		t.Errorf("%d instances were reported, want 3", ups)
	}

	// All but one are removed. A passive one is added, and the scheduler is not notified of it.
	passive := cpu(1, true)
	passive.Name = "p"
	added, surplus, err = grow(cpu(1, false), passive)
	if err != nil || len(added) != 1 || len(surplus) != 2 || m.names() != "identity_0_0 p_0 identity_0_1 identity_0_2" {
		t.Fatalf("got %v added, %v surplus, %v, in all %s", added, surplus, err, m.names())
	}
	if err := added[0].Ready(t.Context()); err != nil {
		t.Errorf("the passive instance is not ready: %v", err)
	}
	for _, in := range surplus {
		if err := exchanger.End(t.Context(), in); err != nil {
			t.Error(err)
		}
	}
	if ups, downs := m.events.counted(); ups != 3 || downs < 2 {
		t.Errorf("%d were reported and %d taken back, want 3 and at least 2", ups, downs)
	}
	if m.names() != "identity_0_0 p_0" || m.pid() != kept {
		t.Errorf("left are %s, the first of which is process %d; want it to be %d", m.names(), m.pid(), kept)
	}
	m.mustInfer(r.small()).Release()

	// A failed start changes nothing.
	file := filepath.Join(m.dir, "1", "model.py")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := grow(cpu(2, false)); err == nil || m.names() != "identity_0_0 p_0" {
		t.Errorf("got error %v, left are %s", err, m.names())
	}
	if err := os.WriteFile(file, []byte("raise RuntimeError('changed for the worse')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := grow(cpu(3, false)); err == nil || !strings.Contains(err.Error(), "changed for the worse") || m.names() != "identity_0_0 p_0" {
		t.Errorf("got error %v, left are %s", err, m.names())
	}
	m.mustInfer(r.small()).Release()

	// A closed model gets no new instances.
	m.close()
	if _, _, err := grow(cpu(5, false)); err == nil || !strings.Contains(infer.Detail(err), "is being unloaded") && !strings.Contains(infer.Detail(err), "not healthy") {
		t.Errorf("got error %v", err)
	}
}

// TestEndWaitsForTheBatch checks that an instance ends only after its current batch.
func TestEndWaitsForTheBatch(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("waits_for_cancellation", infer.Uint8)
	config, text := groupsOf(t, modelConfig("waits_for_cancellation", 1, infer.Uint8),
		&kserve.ModelInstanceGroup{Name: "n", Kind: kserve.ModelInstanceGroup_KIND_MODEL, Count: 1})
	exchanger := m.model.Capabilities().Exchanger
	_, surplus, err := exchanger.Grow(t.Context(), config, text)
	if err != nil || len(surplus) != 1 {
		t.Fatalf("got %v surplus, %v", surplus, err)
	}
	answers, done := make(chan *infer.Response, 1), make(chan backend.Report, 1)
	task := &backend.Task{Context: t.Context(), Request: r.small(), Send: func(response *infer.Response) { answers <- response }}
	surplus[0].Execute(&backend.Batch{Tasks: []*backend.Task{task}, Done: func(_ *backend.Batch, report backend.Report) { done <- report }})
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { ended <- exchanger.End(ctx, surplus[0]) }()
	if !testkit.Within(patience, func() bool { return m.names() == "n_0" }) {
		t.Fatalf("the instance is still listed: %s", m.names())
	}
	select {
	case err := <-ended:
		t.Fatalf("the instance ended, with %v, while it executes", err)
	default:
	}
	surplus[0].Capabilities().Canceller.Cancel(task)
	if response := <-answers; response.Err == nil || response.Err.Message != "nobody waits" {
		t.Errorf("got %+v, want the model's own answer", response)
	}
	<-done
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStubsArePinned checks that stubs run on the cores of their host policy, whether forked or
// started as programs.
func TestStubsArePinned(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("there is only one core")
	}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil || !mine.IsSet(1) {
		t.Skip("core 1 cannot be used here")
	}
	for _, noTemplate := range []bool{false, true} {
		policies := placement.HostPolicies{"mine": {"cpu-cores": "1-1"}, "none": {"cpu-cores": "1000-1001"}, "bad": {"cpu-cores": "x"}}
		r := newFixtureIn(t, testkit.Python(t).Path, func(c *python.Config) { c.NoTemplate = noTemplate }, shm.PoolConfig{}, func(e *process.Environment) { e.HostPolicies = policies })
		config := modelConfig("identity", 1, infer.Uint8)
		config.InstanceGroup[0].HostPolicy = "mine"
		m, err := r.open(r.copyModel("identity"), config)
		if err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(m.pid(), &set); err != nil || set.Count() != 1 || !set.IsSet(1) {
			t.Errorf("the stub runs on %d cores, %v; want core 1 alone", set.Count(), err)
		}
		config.InstanceGroup[0].HostPolicy = "none"
		if _, err := r.open(r.copyModel("identity"), config); err == nil || !strings.Contains(err.Error(), "run a stub on the cores 1000 to 1001, as its host policy says: invalid argument") {
			t.Errorf("cores that are not there: got error %v", err)
		}
		config.InstanceGroup[0].HostPolicy = "bad"
		if _, err := r.open(r.copyModel("identity"), config); err == nil || !strings.Contains(err.Error(), "Got x") {
			t.Errorf("a policy that cannot be read: got error %v", err)
		}
	}
}

// TestTooManyInstancesAreRefused checks that an excessive count is refused before anything is
// allocated.
func TestTooManyInstancesAreRefused(t *testing.T) {
	r := newFixtureWith(t, "", nil)
	config := modelConfig("m", 5, infer.Uint8)
	config.InstanceGroup = append(config.InstanceGroup, &kserve.ModelInstanceGroup{Name: "b", Count: 2_000_000_000, Kind: kserve.ModelInstanceGroup_KIND_CPU})
	model := r.supervisor.Open(envOf("", config), &process.Config{}, &goProgram{closed: &atomic.Int32{}})
	err := model.Start(t.Context(), config, nil, &fakeEvents{})
	if want := "instance group b of model m asks for 2000000000 instances, a model has 4096 at most"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
