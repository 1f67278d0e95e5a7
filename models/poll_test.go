package models_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/repository"
)

// polled is a registry whose repository is polled when the test calls look.
type polled struct {
	*models.Poller
	t     *testing.T
	b     *fakeBackend
	roots []string
	log   *testkit.Buffer
}

// polling returns a registry of two repositories: root and an empty one.
func polling(t *testing.T, root string) *polled {
	t.Helper()
	p := &polled{t: t, b: newFakeBackend(), roots: []string{root, t.TempDir()}, log: &testkit.Buffer{}}
	p.Poller = models.NewPoller(newTestRegistry(t, root, p.b, func(c *models.RegistryConfig) {
		open(t, c, repository.Options{}, p.roots...)
		c.Log = zerolog.New(p.log)
	}))
	return p
}

// look polls the repository and waits until all changes are applied.
func (p *polled) look() {
	p.Look()
	p.Settle()
}

func (p *polled) wantStates(want string) {
	p.t.Helper()
	wantStates(p.t, p.Registry, want)
}

func (p *polled) write(root int, path, text string) {
	p.t.Helper()
	whole := filepath.Join(p.roots[root], path)
	if err := os.MkdirAll(filepath.Dir(whole), 0o755); err != nil {
		p.t.Fatal(err)
	}
	rewrite(p.t, whole, text)
}

func (p *polled) remove(root int, path string) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.roots[root], path)); err != nil {
		p.t.Fatal(err)
	}
}

func TestPollFollowsTheRepository(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.look()
	p.wantStates("m 1 READY; n 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 1)

	p.write(0, "new/config.pbtxt", fakeConfig)
	p.write(0, "new/1/model", "")
	p.write(0, "m/1/model", "changed")
	p.remove(0, "n")
	p.look()
	p.wantStates("m 1 READY; new 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 2)
	_, err := generation(t, p.Registry, "n", infer.LatestVersion)
	wantError(t, err, infer.NotFound, "Request for unknown model: 'n' has no available versions")
	_, err = generation(t, p.Registry, "n", 1)
	wantError(t, err, infer.Unavailable, "Request for unknown model: 'n' version 1 is not at ready state")

	// Versions are added and removed without reloading the others.
	p.write(0, "m/2/model", "")
	p.look()
	p.wantStates("m 1 READY; m 2 READY; new 1 READY")
	p.remove(0, "m/1")
	p.look()
	p.wantStates("m 1 UNAVAILABLE unloaded; m 2 READY; new 1 READY")
	p.write(0, "m/3/model", "")
	p.write(0, "m/config.pbtxt", strings.Replace(fakeConfig, "all { }", "specific { versions: [ 2, 4 ] }", 1))
	p.look()
	p.wantStates("m 1 UNAVAILABLE unloaded; m 2 READY; new 1 READY")
	wantGeneration(t, p.Registry, "m", infer.LatestVersion, 1)

	// Changes without effect cause no reload.
	p.write(0, "m/config.pbtxt", strings.Replace(fakeConfig, "all { }", "specific { versions: [ 2, 4 ] } # the same", 1))
	p.write(0, "m/2/__pycache__/model.cpython-311.pyc", "")
	p.write(0, "m/2/.model.py.swp", "")
	p.look()
	wantGeneration(t, p.Registry, "m", 2, 1)
	wantNoOperations(t, p.Registry)
}

// TestPollSeesTheArchiveOfAnEnvironment checks that a change of the archive reloads the models that
// name it and no others.
func TestPollSeesTheArchiveOfAnEnvironment(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1, 2}, "n": {1}}))
	archive := filepath.Join(t.TempDir(), "env.tar.gz")
	rewrite(t, archive, "one")
	p.write(0, "m/config.pbtxt", fakeConfig+"parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \""+archive+"\" } }")
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.look()
	p.look()
	wantGeneration(t, p.Registry, "m", 1, 1)
	rewrite(t, archive, "another")
	p.look()
	p.look()
	wantGeneration(t, p.Registry, "m", 1, 2)
	wantGeneration(t, p.Registry, "m", 2, 2)
	wantGeneration(t, p.Registry, "n", 1, 1)
	p.write(0, "m/2/model", "changed")
	p.look()
	wantGeneration(t, p.Registry, "m", 1, 2)
	wantGeneration(t, p.Registry, "m", 2, 3)
}

// TestPollOfHalfAModel polls while a config is incomplete and checks that the model keeps serving
// and loads when the config is complete.
func TestPollOfHalfAModel(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write(0, "m/config.pbtxt", "input [ { na")
	p.write(0, "half/config.pbtxt", "input [ { na")
	p.write(0, "n/1/model", "changed")
	for range 2 {
		p.look()
		p.wantStates("half; m 1 READY; n 1 READY")
	}
	wantGeneration(t, p.Registry, "m", 1, 1)
	wantGeneration(t, p.Registry, "n", 1, 2)
	if text := "Poll failed for model directory 'm': failed to read text proto from"; strings.Count(p.log.String(), text) != 2 {
		t.Errorf("the log does not say twice %q:\n%s", text, p.log.String())
	}
	p.write(0, "m/config.pbtxt", strings.Replace(fakeConfig, "backend", "max_batch_size: 0 default_model_filename: \"x\" backend", 1))
	p.write(0, "half/config.pbtxt", fakeConfig)
	p.write(0, "half/1/model", "")
	p.look()
	p.wantStates("half 1 READY; m 1 READY; n 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 2)
}

// TestPollTriesAgain checks that each poll retries the models that failed to load.
func TestPollTriesAgain(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1}, "bad": {1}, "empty": {}}))
	p.b.failures["bad:1"] = infer.Errorf(infer.Internal, "no")
	wantError(t, p.Start(t.Context()), infer.Internal, "failed to load all models")
	for range 2 {
		p.look()
	}
	p.wantStates("bad 1 UNAVAILABLE Internal: no; m 1 READY")
	if p.b.openedTimes("bad:1") != 3 || p.b.openedTimes("m:1") != 1 {
		t.Errorf("loaded %v, want the bad one 3 times", p.b.opened)
	}
	if ready, err := p.Ready(t.Context()); ready || err != nil {
		t.Errorf("ready: %v, %v", ready, err)
	}
	// A serving model stays in service while its next load fails.
	p.b.failures["m:1"] = infer.Errorf(infer.Internal, "worse")
	p.write(0, "m/1/model", "changed")
	p.look()
	p.look()
	wantGeneration(t, p.Registry, "m", 1, 1)
	p.remove(0, "empty")
	clear(p.b.failures)
	p.look()
	p.wantStates("bad 1 READY; m 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 4)
	if ready, err := p.Ready(t.Context()); !ready || err != nil {
		t.Errorf("ready: %v, %v, want true", ready, err)
	}
}

// TestPollUnloadsDuplicateNames checks that a model is unloaded when another repository has one of
// its name, and that the remaining one is loaded when only one is left.
func TestPollUnloadsDuplicateNames(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write(1, "m/config.pbtxt", fakeConfig)
	p.write(1, "m/1/model", "")
	p.look()
	p.wantStates("m  UNAVAILABLE model appears in two or more repositories; n 1 READY")
	_, err := generation(t, p.Registry, "m", infer.LatestVersion)
	wantError(t, err, infer.NotFound, "Request for unknown model: 'm' has no available versions")
	p.remove(0, "m")
	p.look()
	p.wantStates("m 1 READY; n 1 READY")
	if text := "failed to poll model 'm': not unique across all model repositories"; !strings.Contains(p.log.String(), text) {
		t.Errorf("the log does not say %q", text)
	}
}

// TestPollDoesNotWait checks that polls reload a changed model while the load of another one takes
// long.
func TestPollDoesNotWait(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1}, "slow": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := p.b.holdStart("slow:1")
	p.write(0, "slow/1/model", "changed")
	p.Look()
	testkit.Eventually(t, patience, func() bool { return p.b.openedTimes("slow:1") == 2 })
	for i := range 3 {
		p.write(0, "m/1/model", fmt.Sprint("changed ", i))
		p.Look()
		testkit.Eventually(t, patience, func() bool {
			got, err := generation(t, p.Registry, "m", 1)
			return err == nil && got == int64(i+2)
		})
	}
	if p.b.openedTimes("slow:1") != 2 {
		t.Errorf("loaded %d times although nothing has changed", p.b.openedTimes("slow:1"))
	}
	wantGeneration(t, p.Registry, "slow", 1, 1)
	close(held)
	p.Settle()
	wantGeneration(t, p.Registry, "slow", 1, 2)
	p.look()
	wantGeneration(t, p.Registry, "slow", 1, 2)
}

// overtaken is the error of a load whose model has changed meanwhile.
const overtaken = "Newer operation has been applied to the model lifecycle, current load operation is out-dated."

// TestPollOvertakesALoad changes or removes the files of a model while it is being loaded, and
// checks that the outdated load fails.
func TestPollOvertakesALoad(t *testing.T) {
	p := polling(t, writeModels(t, map[string][]int64{"m": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string]func(){
		"changed": func() { p.write(0, "changed/1/model", "again") },
		"gone":    func() { p.remove(0, "gone") },
	} {
		held := p.b.holdStart(name + ":1")
		p.write(0, name+"/config.pbtxt", fakeConfig)
		p.write(0, name+"/1/model", "")
		p.Look()
		testkit.Eventually(t, patience, p.b.isLoading)
		more()
		p.Look()
		close(held)
		p.Settle()
		if want := "failed to load '" + name + "' version 1: Unavailable: " + overtaken; !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, p.log.String())
		}
		p.look()
	}
	p.wantStates("changed 1 READY; m 1 READY")
	wantGeneration(t, p.Registry, "changed", 1, 2)
	if p.b.openedTimes("gone:1") != 1 || p.b.closed["gone:1"] == 0 {
		t.Errorf("gone was loaded %d times and ended %d times, want 1 and at least 1", p.b.openedTimes("gone:1"), p.b.closed["gone:1"])
	}
}

// TestPollStopsWithTheServer shuts the server down while a poll loads a model, and checks that
// polling ends and every opened model is closed.
func TestPollStopsWithTheServer(t *testing.T) {
	b := newFakeBackend()
	root := writeModels(t, map[string][]int64{"m": {1}})
	r := startRegistry(t, root, b, func(c *models.RegistryConfig) { c.PollInterval = time.Millisecond })
	held := b.holdStart("m:1")
	modify(t, root, "m")
	testkit.Eventually(t, patience, b.isLoading)
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	wantExiting(t, r)
	close(held)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if b.opened["m:1"] > b.closed["m:1"] {
		t.Errorf("opened %d times, closed only %d times", b.opened["m:1"], b.closed["m:1"])
	}
}

// TestPollLoadsEnsemblesWhenTheirModelsAppear checks that ensembles are loaded and unloaded when
// polls find that their composing models appear, change and disappear.
func TestPollLoadsEnsemblesWhenTheirModelsAppear(t *testing.T) {
	p := polling(t, withEnsembles(t, map[string][]int64{"a": {1}}, map[string]string{"e": "a b", "top": "e"}))
	wantError(t, p.Start(t.Context()), infer.Internal, "failed to load all models")
	p.look()
	p.wantStates("a 1 READY; e; top")
	const text = "ensemble e contains models that are not available or ambiguous: b"
	if n := strings.Count(p.log.String(), "Invalid argument: "+text); n != 1 {
		t.Errorf("the log says %d times %q, want once", n, text)
	}
	p.write(0, "b/config.pbtxt", fakeConfig)
	p.write(0, "b/1/model", "")
	p.look()
	p.wantStates("a 1 READY; b 1 READY; e 1 READY; top 1 READY")
	p.write(0, "b/1/model", "changed")
	p.look()
	p.wantStates("a 1 READY; b 1 READY; e 1 READY; top 1 READY")
	p.remove(0, "a")
	p.look()
	p.wantStates("b 1 READY; e 1 UNAVAILABLE unloaded; top 1 UNAVAILABLE unloaded")
	if p.b.openedTimes("b:1") != 2 {
		t.Errorf("b was loaded %d times, want 2", p.b.openedTimes("b:1"))
	}
}
