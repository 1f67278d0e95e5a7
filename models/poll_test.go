package models

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
	"github.com/nereid-serving/nereid/models/repository"
)

// polled is a registry whose repository is polled when the test calls look.
type polled struct {
	*Registry
	t      *testing.T
	poller *poller
	b      *fakeBackend
	roots  []string
	log    *testkit.Buffer
}

// polling returns a registry of two repositories: root and an empty one.
func polling(t *testing.T, root string) *polled {
	t.Helper()
	p := &polled{t: t, b: NewFakeBackend(), roots: []string{root, t.TempDir()}, log: &testkit.Buffer{}}
	opened, err := repository.Open(p.roots, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	p.Registry = NewTestRegistry(t, root, p.b, func(c *RegistryConfig) {
		c.Repository.Close()
		c.Repository, c.Log = opened, zerolog.New(p.log)
	})
	p.poller = newPoller(p.Registry)
	return p
}

// look polls the repository and waits until all changes are applied.
func (p *polled) look() {
	p.t.Helper()
	p.poller.look(p.polling)
	p.polls.Wait()
	p.ending.Wait()
}

func (p *polled) wantStates(want string) {
	p.t.Helper()
	if got := states(p.Registry); got != want {
		p.t.Errorf("got the index %q, want %q", got, want)
	}
}

func (p *polled) write(root int, path, text string) {
	p.t.Helper()
	whole := filepath.Join(p.roots[root], path)
	if err := os.MkdirAll(filepath.Dir(whole), 0o755); err != nil {
		p.t.Fatal(err)
	}
	Rewrite(p.t, whole, text)
}

func (p *polled) remove(root int, path string) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.roots[root], path)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *polled) opened(key string) int {
	p.b.Mu.Lock()
	defer p.b.Mu.Unlock()
	return p.b.Opened[key]
}

func TestPollFollowsTheRepository(t *testing.T) {
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1}, "n": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.look()
	p.wantStates("m 1 READY; n 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 1)

	p.write(0, "new/config.pbtxt", FakeConfig)
	p.write(0, "new/1/model", "")
	p.write(0, "m/1/model", "changed")
	p.remove(0, "n")
	p.look()
	p.wantStates("m 1 READY; new 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 2)
	_, err := generation(t, p.Registry, "n", infer.LatestVersion)
	WantError(t, err, infer.NotFound, "Request for unknown model: 'n' has no available versions")
	_, err = generation(t, p.Registry, "n", 1)
	WantError(t, err, infer.Unavailable, "Request for unknown model: 'n' version 1 is not at ready state")

	// Versions are added and removed without reloading the others.
	p.write(0, "m/2/model", "")
	p.look()
	p.wantStates("m 1 READY; m 2 READY; new 1 READY")
	p.remove(0, "m/1")
	p.look()
	p.wantStates("m 1 UNAVAILABLE unloaded; m 2 READY; new 1 READY")
	p.write(0, "m/3/model", "")
	p.write(0, "m/config.pbtxt", strings.Replace(FakeConfig, "all { }", "specific { versions: [ 2, 4 ] }", 1))
	p.look()
	p.wantStates("m 1 UNAVAILABLE unloaded; m 2 READY; new 1 READY")
	wantGeneration(t, p.Registry, "m", infer.LatestVersion, 1)

	// Changes without effect cause no reload.
	p.write(0, "m/config.pbtxt", strings.Replace(FakeConfig, "all { }", "specific { versions: [ 2, 4 ] } # the same", 1))
	p.write(0, "m/2/__pycache__/model.cpython-311.pyc", "")
	p.write(0, "m/2/.model.py.swp", "")
	p.look()
	wantGeneration(t, p.Registry, "m", 2, 1)
	wantNoOperations(t, p.Registry)
}

// TestPollSeesTheArchiveOfAnEnvironment checks that a change of the archive reloads the models that
// name it and no others.
func TestPollSeesTheArchiveOfAnEnvironment(t *testing.T) {
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1, 2}, "n": {1}}))
	archive := filepath.Join(t.TempDir(), "env.tar.gz")
	Rewrite(t, archive, "one")
	p.write(0, "m/config.pbtxt", FakeConfig+"parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \""+archive+"\" } }")
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.look()
	p.look()
	wantGeneration(t, p.Registry, "m", 1, 1)
	Rewrite(t, archive, "another")
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
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1}, "n": {1}}))
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
	p.write(0, "m/config.pbtxt", strings.Replace(FakeConfig, "backend", "max_batch_size: 0 default_model_filename: \"x\" backend", 1))
	p.write(0, "half/config.pbtxt", FakeConfig)
	p.write(0, "half/1/model", "")
	p.look()
	p.wantStates("half 1 READY; m 1 READY; n 1 READY")
	wantGeneration(t, p.Registry, "m", 1, 2)
}

// TestPollTriesAgain checks that each poll retries the models that failed to load.
func TestPollTriesAgain(t *testing.T) {
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1}, "bad": {1}, "empty": {}}))
	p.b.failures["bad:1"] = infer.Errorf(infer.Internal, "no")
	WantError(t, p.Start(t.Context()), infer.Internal, "failed to load all models")
	for range 2 {
		p.look()
	}
	p.wantStates("bad 1 UNAVAILABLE Internal: no; m 1 READY")
	if p.opened("bad:1") != 3 || p.opened("m:1") != 1 {
		t.Errorf("loaded %v, want the bad one 3 times", p.b.Opened)
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

// TestPollOfNamesThatAreTwice checks that a model is unloaded when another repository has one of
// its name, and that the remaining one is loaded when only one is left.
func TestPollOfNamesThatAreTwice(t *testing.T) {
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1}, "n": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write(1, "m/config.pbtxt", FakeConfig)
	p.write(1, "m/1/model", "")
	p.look()
	p.wantStates("m  UNAVAILABLE model appears in two or more repositories; n 1 READY")
	_, err := generation(t, p.Registry, "m", infer.LatestVersion)
	WantError(t, err, infer.NotFound, "Request for unknown model: 'm' has no available versions")
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
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1}, "slow": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	p.b.Mu.Lock()
	p.b.held["slow:1"] = held
	p.b.Mu.Unlock()
	p.write(0, "slow/1/model", "changed")
	p.poller.look(p.polling)
	testkit.Eventually(t, Patience, func() bool { return p.opened("slow:1") == 2 })
	for i := range 3 {
		p.write(0, "m/1/model", fmt.Sprint("changed ", i))
		p.poller.look(p.polling)
		testkit.Eventually(t, Patience, func() bool {
			got, err := generation(t, p.Registry, "m", 1)
			return err == nil && got == int64(i+2)
		})
	}
	if p.opened("slow:1") != 2 {
		t.Errorf("loaded %d times although nothing has changed", p.opened("slow:1"))
	}
	wantGeneration(t, p.Registry, "slow", 1, 1)
	close(held)
	p.polls.Wait()
	wantGeneration(t, p.Registry, "slow", 1, 2)
	p.look()
	wantGeneration(t, p.Registry, "slow", 1, 2)
}

// TestPollOvertakesALoad changes or removes the files of a model while it is being loaded, and
// checks that the outdated load fails.
func TestPollOvertakesALoad(t *testing.T) {
	const text = "Newer operation has been applied to the model lifecycle, current load operation is out-dated."
	p := polling(t, WriteModels(t, map[string][]int64{"m": {1}}))
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string]func(){
		"changed": func() { p.write(0, "changed/1/model", "again") },
		"gone":    func() { p.remove(0, "gone") },
	} {
		held := make(chan struct{})
		p.b.Mu.Lock()
		p.b.held[name+":1"] = held
		p.b.Mu.Unlock()
		p.write(0, name+"/config.pbtxt", FakeConfig)
		p.write(0, name+"/1/model", "")
		p.poller.look(p.polling)
		testkit.Eventually(t, Patience, func() bool {
			p.b.Mu.Lock()
			defer p.b.Mu.Unlock()
			return p.b.loading == 1
		})
		more()
		p.poller.look(p.polling)
		close(held)
		p.polls.Wait()
		p.ending.Wait()
		if want := "failed to load '" + name + "' version 1: Unavailable: " + text; !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, p.log.String())
		}
		p.look()
	}
	p.wantStates("changed 1 READY; m 1 READY")
	wantGeneration(t, p.Registry, "changed", 1, 2)
	if p.opened("gone:1") != 1 || p.b.Closed["gone:1"] == 0 {
		t.Errorf("gone was loaded %d times and ended %d times, want 1 and at least 1", p.opened("gone:1"), p.b.Closed["gone:1"])
	}
}

// TestPollStopsWithTheServer shuts the server down while a poll loads a model, and checks that
// polling ends and every opened model is closed.
func TestPollStopsWithTheServer(t *testing.T) {
	b := NewFakeBackend()
	root := WriteModels(t, map[string][]int64{"m": {1}})
	r := NewTestRegistry(t, root, b, func(c *RegistryConfig) { c.PollInterval = time.Millisecond })
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	b.Mu.Lock()
	b.held["m:1"] = held
	b.Mu.Unlock()
	modify(t, root, "m")
	testkit.Eventually(t, Patience, func() bool {
		b.Mu.Lock()
		defer b.Mu.Unlock()
		return b.loading == 1
	})
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	<-r.polling.Done()
	close(held)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.polls.Wait()
	if b.Opened["m:1"] > b.Closed["m:1"] {
		t.Errorf("opened %d times, closed only %d times", b.Opened["m:1"], b.Closed["m:1"])
	}
}

// TestPollLoadsEnsemblesWhenTheirModelsAppear checks that ensembles are loaded and unloaded when
// polls find that their composing models appear, change and disappear.
func TestPollLoadsEnsemblesWhenTheirModelsAppear(t *testing.T) {
	p := polling(t, withEnsembles(t, map[string][]int64{"a": {1}}, map[string]string{"e": "a b", "top": "e"}))
	WantError(t, p.Start(t.Context()), infer.Internal, "failed to load all models")
	p.look()
	p.wantStates("a 1 READY; e; top")
	const text = "ensemble e contains models that are not available or ambiguous: b"
	if n := strings.Count(p.log.String(), "Invalid argument: "+text); n != 1 {
		t.Errorf("the log says %d times %q, want once", n, text)
	}
	p.write(0, "b/config.pbtxt", FakeConfig)
	p.write(0, "b/1/model", "")
	p.look()
	p.wantStates("a 1 READY; b 1 READY; e 1 READY; top 1 READY")
	p.write(0, "b/1/model", "changed")
	p.look()
	p.wantStates("a 1 READY; b 1 READY; e 1 READY; top 1 READY")
	p.remove(0, "a")
	p.look()
	p.wantStates("b 1 READY; e 1 UNAVAILABLE unloaded; top 1 UNAVAILABLE unloaded")
	if p.opened("b:1") != 2 {
		t.Errorf("b was loaded %d times, want 2", p.opened("b:1"))
	}
}
