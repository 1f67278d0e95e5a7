package models_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
	"github.com/nereid-serving/nereid/models/repository"
)

// stored is a registry of a repository in a store and a repository on disk.
type stored struct {
	*models.Poller
	t      *testing.T
	store  *mirrortest.Store
	b      *fakeBackend
	roots  *repository.Roots
	folder string // the repository on disk
	mounts string
	log    *testkit.Buffer
}

// latestConfig has the default version policy.
var latestConfig = strings.Replace(fakeConfig, "version_policy { all { } }", "", 1)

// putModel puts a model with one version into the store.
func putModel(store *mirrortest.Store, name string) {
	store.Put(name+"/config.pbtxt", latestConfig)
	store.Put(name+"/1/weights", "weights of "+name)
}

// storing returns a registry of these models in the store and in the folder.
func storing(t *testing.T, change func(*models.RegistryConfig, *repository.Options), inStore, inFolder []string) *stored {
	t.Helper()
	s := &stored{t: t, store: mirrortest.New(), b: newFakeBackend(), mounts: t.TempDir(), log: &testkit.Buffer{}}
	for _, name := range inStore {
		putModel(s.store, name)
	}
	local := make(map[string][]int64)
	for _, name := range inFolder {
		local[name] = []int64{1}
	}
	s.folder = writeModels(t, local)
	s.Poller = models.NewPoller(newTestRegistry(t, s.folder, s.b, func(c *models.RegistryConfig) {
		options := repository.Options{
			Objects: s.store.Opener, Mounts: map[string]string{"s3": s.mounts}, Log: zerolog.New(s.log), StoreStall: time.Minute,
		}
		c.Log = options.Log
		if change != nil {
			change(c, &options)
		}
		open(t, c, options, "s3://bucket/models", s.folder)
		s.roots = c.Repository
		t.Cleanup(func() {
			if left := testkit.Tree(t, s.mounts); left != "" {
				t.Errorf("%s is left", left)
			}
		})
	}))
	return s
}

// byRequest makes the server load only models that are requested.
func byRequest(c *models.RegistryConfig, _ *repository.Options) { c.Explicit = true }

// renew waits for a new listing of the store. It waits for two, because the first may have begun
// before the call: the second begins only when the first is complete.
func (s *stored) renew() {
	s.t.Helper()
	for range 2 {
		lists := s.store.Lists()
		testkit.Eventually(s.t, 10*time.Second, func() bool { s.roots.Renew(0); return s.store.Lists() > lists })
	}
}

// look renews the listing, polls and waits until all changes are applied.
func (s *stored) look() {
	s.t.Helper()
	s.renew()
	s.Look()
	s.Settle()
}

func (s *stored) start() {
	s.t.Helper()
	if err := s.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stored) wantStates(want string) {
	s.t.Helper()
	wantStates(s.t, s.Registry, want)
}

func (s *stored) wantLog(text string, times int) {
	s.t.Helper()
	if n := strings.Count(s.log.String(), text); n != times {
		s.t.Errorf("the log has %q %d times, want %d: %s", text, n, times, s.log.String())
	}
}

// copies lists the directories of copies.
func (s *stored) copies() []string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.mounts, "nereid-models-*", "folder*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// TestModelsOfAStoreServe checks that models of a store serve from a local copy beside models of a
// directory, and that the copy is removed with its model.
func TestModelsOfAStoreServe(t *testing.T) {
	s := storing(t, byRequest, []string{"far", "unasked"}, []string{"near"})
	s.start()
	s.wantStates("far; near; unasked")
	for _, name := range []string{"far", "near"} {
		mustLoad(t, s.Registry, name)
		wantGeneration(t, s.Registry, name, 1, 1)
	}
	s.wantStates("far 1 READY; near 1 READY; unasked")
	if got := s.copies(); len(got) != 1 {
		t.Fatalf("got the copies %q, want one", got)
	}
	if got := testkit.Tree(t, s.copies()[0]); !strings.HasPrefix(got, `1/ 700; 1/weights 600 "weights of far"; config.pbtxt 600`) {
		t.Errorf("the copy has %s", got)
	}
	if n := s.store.Opened("unasked/1/weights"); n != 0 {
		t.Errorf("a model that was not asked for was read %d times", n)
	}
	mustLoad(t, s.Registry, "far")
	wantGeneration(t, s.Registry, "far", 1, 1) // no change, so no reload
	unload(t, s.Registry, "far", false)
	if got := s.copies(); len(got) != 0 {
		t.Errorf("after the unload: got the copies %q, want none", got)
	}
}

// TestUnselectedVersionsAreNotCopied checks that only versions that the policy selects
// are copied.
func TestUnselectedVersionsAreNotCopied(t *testing.T) {
	s := storing(t, nil, []string{"m"}, nil)
	s.store.Put("m/config.pbtxt", latestConfig+"version_policy { specific { versions: [2, 3] } }")
	for _, key := range []string{"m/2/w", "m/3/", "m/10/w", "m/shared/x"} {
		s.store.Put(key, "")
	}
	s.renew()
	s.start()
	s.wantStates("m 2 READY; m 3 READY")
	if got := testkit.Tree(t, s.copies()[0]); !strings.HasPrefix(got, `2/ 700; 2/w 600 ""; 3/ 700; config.pbtxt 600`) || !strings.HasSuffix(got, `; shared/ 700; shared/x 600 ""`) {
		t.Errorf("the copy has %s", got)
	}
}

// TestPollFollowsAStore checks that new models are loaded, changed ones reloaded with unchanged
// files reused, and missing ones unloaded. Deleting or replacing a file is a change.
func TestPollFollowsAStore(t *testing.T) {
	s := storing(t, nil, []string{"m"}, nil)
	s.store.Put("m/1/more", "more")
	s.renew()
	s.start()
	putModel(s.store, "new")
	s.look()
	s.wantStates("m 1 READY; new 1 READY")
	s.look()
	wantGeneration(t, s.Registry, "m", 1, 1)
	s.store.Delete("m/1/more")
	s.look()
	wantGeneration(t, s.Registry, "m", 1, 2)
	s.store.Put("m/1/weights", "others")
	s.look()
	wantGeneration(t, s.Registry, "m", 1, 3)
	if n := s.store.Opened("m/config.pbtxt"); n != 2 { // for the listing and for the first copy
		t.Errorf("the configuration was read %d times, want twice", n)
	}
	if n := s.store.Opened("m/1/weights"); n != 2 {
		t.Errorf("the weights were read %d times, want twice", n)
	}
	for _, key := range []string{"m/config.pbtxt", "m/1/weights"} {
		s.store.Delete(key)
	}
	s.look()
	s.wantStates("new 1 READY")
	// That of new alone, when the versions that were replaced have ended.
	testkit.Eventually(t, 10*time.Second, func() bool { return len(s.copies()) == 1 })
}

// TestPollKeepsACurrentCopy checks that a poll does not overtake a load that has already
// listed the model again because it changed during the copy.
func TestPollKeepsACurrentCopy(t *testing.T) {
	s := storing(t, nil, []string{"other"}, nil)
	s.start()
	putModel(s.store, "m")
	s.renew()
	second, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	begun := 0 // needs no lock: only one copy runs at a time
	s.store.Before(func(call mirrortest.Call, key string) {
		if call != mirrortest.Open || key != "m/1/weights" {
			return
		}
		switch begun++; begun {
		case 1:
			s.store.Put(key, "new")
		case 2:
			close(second)
			<-goOn
		}
	})
	s.Look()
	<-second
	s.Look()
	release()
	s.Settle()
	s.wantStates("m 1 READY; other 1 READY")
	wantGeneration(t, s.Registry, "m", 1, 1)
	s.wantLog(overtaken, 0)
	if n := s.store.Opened("m/1/weights"); n != 2 {
		t.Errorf("the weights were read %d times, want twice", n)
	}
}

// TestOutageKeepsModels checks that models stay loaded while their store cannot be listed.
func TestOutageKeepsModels(t *testing.T) {
	s := storing(t, nil, []string{"m", "n"}, []string{"near"})
	s.start()
	s.store.Fail(mirrortest.List, infer.Errorf(infer.Internal, "out of order"))
	s.store.Delete("n/config.pbtxt")
	s.store.Delete("n/1/weights")
	for range 3 {
		s.renew()
		s.Look()
		s.Settle()
	}
	s.wantStates("m 1 READY; n 1 READY; near 1 READY")
	testkit.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(s.log.String(), "failed to poll model repository 's3://bucket/models': out of order")
	})
	if err := os.RemoveAll(filepath.Join(s.folder, "near")); err != nil {
		t.Fatal(err)
	}
	s.Look()
	s.Settle()
	s.wantStates("m 1 READY; n 1 READY") // the repository on disk is still polled
	s.store.Fail(mirrortest.List, nil)
	s.look()
	s.wantStates("m 1 READY")
	wantGeneration(t, s.Registry, "m", 1, 1)
	s.wantLog("failed to poll model repository", 1)
	s.wantLog("responds again after", 1)
}

// TestFailedCopyKeepsTheServingVersion checks that the old version serves when the new one
// cannot be copied, and that the next poll retries.
func TestFailedCopyKeepsTheServingVersion(t *testing.T) {
	s := storing(t, nil, []string{"m"}, nil)
	s.start()
	s.store.Put("m/1/weights", "others")
	s.store.Fail(mirrortest.Open, s.store.Denial("m/1/weights"))
	s.look()
	wantGeneration(t, s.Registry, "m", 1, 1)
	s.wantLog("failed to load 'm' version 1: Internal: Failed to get object at s3://bucket/models/m/1/weights due to exception: AccessDenied, error message: no", 1)
	s.store.Fail(mirrortest.Open, nil)
	s.look()
	wantGeneration(t, s.Registry, "m", 1, 2)
}

// TestFailedCopyIsReported checks that the client and the index get the error of the copy.
func TestFailedCopyIsReported(t *testing.T) {
	s := storing(t, byRequest, []string{"m"}, nil)
	s.start()
	s.store.Fail(mirrortest.Read, infer.Errorf(infer.Internal, "broken"))
	err := s.Load(t.Context(), "m", "", nil)
	wantError(t, err, infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: broken;\n")
	s.wantStates("m 1 UNAVAILABLE Internal: broken")
	if got := s.copies(); len(got) != 0 {
		t.Errorf("got the copies %q, want none", got)
	}
}

// TestModelChangedDuringTheCopyIsReadAgain checks that a model that changes while it is copied is
// served in its final state, with its final config.
func TestModelChangedDuringTheCopyIsReadAgain(t *testing.T) {
	s := storing(t, byRequest, []string{"m"}, nil)
	s.start()
	var once sync.Once
	s.store.Before(func(call mirrortest.Call, key string) {
		if call == mirrortest.Open && key == "m/1/weights" {
			once.Do(func() {
				s.store.Put("m/config.pbtxt", latestConfig+"version_policy { all {} }")
				s.store.Put("m/1/weights", "new")
				s.store.Put("m/2/weights", "newer")
			})
		}
	})
	mustLoad(t, s.Registry, "m")
	s.wantStates("m 1 READY; m 2 READY")
	if got := testkit.Tree(t, s.copies()[0]); !strings.HasPrefix(got, `1/ 700; 1/weights 600 "new"; 2/ 700; 2/weights 600 "newer"; config.pbtxt 600`) {
		t.Errorf("the copy has %s", got)
	}
	mustLoad(t, s.Registry, "m")
	wantGeneration(t, s.Registry, "m", 2, 1) // already current, so no reload
}

// TestConstantlyChangingModelFailsToLoad checks that a load fails if the model changes during every
// copy.
func TestConstantlyChangingModelFailsToLoad(t *testing.T) {
	s := storing(t, byRequest, []string{"m"}, nil)
	s.start()
	s.store.Before(func(call mirrortest.Call, key string) {
		if call == mirrortest.Open && key == "m/1/weights" {
			s.store.Put("m/1/weights", "new")
		}
	})
	err := s.Load(t.Context(), "m", "", nil)
	wantError(t, err, infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: Unavailable: model 'm' of s3://bucket/models changes while it is copied: "+
		"5 copies were started, and none was completed; load it when its upload has ended;\n")
}

// TestHalfUploadedVersionIsLoadedAsItIs checks that a partly uploaded version is loaded, as in
// Triton, and reloaded when the rest arrives.
func TestHalfUploadedVersionIsLoadedAsItIs(t *testing.T) {
	s := storing(t, nil, []string{"m"}, nil)
	s.start()
	s.store.Put("m/2/", "")
	s.look()
	s.wantStates("m 1 UNAVAILABLE unloaded; m 2 READY")
	s.store.Put("m/2/weights", "all of them")
	s.look()
	wantGeneration(t, s.Registry, "m", 2, 2)
}

// TestHangingStoreStallsNobody checks that while the store hangs, everything that does not need it
// still works and the server shuts down.
func TestHangingStoreStallsNobody(t *testing.T) {
	for _, call := range []mirrortest.Call{mirrortest.List, mirrortest.Open, mirrortest.Read} {
		t.Run(string(call), func(t *testing.T) {
			s := storing(t, byRequest, []string{"far", "loaded"}, []string{"near"})
			s.start()
			mustLoad(t, s.Registry, "loaded")
			s.store.Hang(call)
			failed := make(chan error, 1)
			go func() { failed <- s.Load(context.Background(), "far", "", nil) }()
			testkit.Eventually(t, 10*time.Second, func() bool { return s.store.Waiting(call) > 0 })
			s.roots.Renew(0)

			wantGeneration(t, s.Registry, "loaded", 1, 1)
			for range 2 {
				mustLoad(t, s.Registry, "near")
				wantGeneration(t, s.Registry, "near", 1, 1)
			}
			if got := states(s.Registry); !strings.HasPrefix(got, "far") || !strings.HasSuffix(got, "; loaded 1 READY; near 1 READY") {
				t.Errorf("got the index %q", got)
			}
			if live, err := s.Live(); !live || err != nil {
				t.Errorf("live: got %v, %v", live, err)
			}
			if _, err := s.Ready(t.Context()); err != nil {
				t.Errorf("ready: got error %v", err)
			}
			if _, err := s.roots.Footprint(repository.Identity{Name: "far"}); err != nil {
				t.Errorf("footprint: got error %v", err)
			}
			if f := s.roots.Stores()[0].Figures(); f.Copies != 1 {
				t.Errorf("got the figures %+v", f)
			}
			if err := s.Unload(t.Context(), "loaded", false); err != nil {
				t.Errorf("unload: got error %v", err)
			}
			if err := s.Shutdown(context.Background()); err != nil {
				t.Errorf("shutdown: got error %v", err)
			}
			if err := <-failed; err == nil {
				t.Error("the load has succeeded")
			}
		})
	}
}

// TestStalledStoreFailsTheLoad checks that a load fails when the store sends nothing for
// StoreStall.
func TestStalledStoreFailsTheLoad(t *testing.T) {
	s := storing(t, func(c *models.RegistryConfig, o *repository.Options) {
		byRequest(c, o)
		o.StoreStall = 50 * time.Millisecond
	}, []string{"m"}, nil)
	s.start()
	s.store.Hang(mirrortest.Read)
	s.store.Put("m/config.pbtxt", latestConfig) // not in the listing yet, so it must be read
	err := s.Load(t.Context(), "m", "", nil)
	wantError(t, err, infer.Internal, "failed to load 'm', failed to poll from model repository")
	s.wantLog("Poll failed for model directory 'm': the store of s3://bucket/models has sent nothing for 50ms", 1)
	s.store.Resume(mirrortest.Read)
	if err := s.Load(t.Context(), "m", "", nil); err != nil {
		t.Error(err)
	}
}

// TestEnsembleOfAStore loads an ensemble of a store with a composing model from the store and one
// from a directory.
func TestEnsembleOfAStore(t *testing.T) {
	s := storing(t, byRequest, []string{"far"}, []string{"near"})
	s.store.Put("both/config.pbtxt", ensembleOf("far", "near"))
	s.store.Put("both/1/", "")
	s.start()
	mustLoad(t, s.Registry, "both")
	s.wantStates("both 1 READY; far 1 READY; near 1 READY")
	unload(t, s.Registry, "both", true)
	awaitUnloaded(t, s.Registry, "far")
	if got := s.copies(); len(got) != 0 {
		t.Errorf("got the copies %q, want none", got)
	}
}

// TestConfigOverrideOfAStoredModel checks that a config override does not copy the files again.
func TestConfigOverrideOfAStoredModel(t *testing.T) {
	s := storing(t, byRequest, []string{"m"}, nil)
	s.start()
	const groups = `{"backend": "fake", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}], "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}], "instance_group": [{"count": %d, "kind": "KIND_CPU"}]}`
	for n := range 2 {
		if err := s.Load(t.Context(), "m", fmt.Sprintf(groups, n+1), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Settle()
	s.wantStates("m 1 READY")
	if len(s.copies()) != 1 || s.store.Opened("m/1/weights") != 1 {
		t.Errorf("got the copies %q, and the weights were read %d times; want one and once", s.copies(), s.store.Opened("m/1/weights"))
	}
}

// TestModelWithInvalidKeysKeepsServing checks that a model whose objects all have invalid keys
// keeps serving: the model is damaged, not deleted.
func TestModelWithInvalidKeysKeepsServing(t *testing.T) {
	s := storing(t, nil, []string{"m", "n"}, nil)
	s.start()
	for _, key := range []string{"m/config.pbtxt", "m/1/weights"} {
		s.store.Delete(key)
	}
	s.store.Put("m//config.pbtxt", latestConfig)
	s.store.Put("other//x", "of no model")
	s.look()
	s.look()
	s.wantStates("m 1 READY; n 1 READY")
	wantGeneration(t, s.Registry, "m", 1, 1)
	if text := s.log.String(); !strings.Contains(text, "Cannot handle item with empty name at s3://bucket/models/m") {
		t.Errorf("the log does not say it: %s", text)
	}
	s.store.Delete("m//config.pbtxt")
	s.look()
	s.wantStates("n 1 READY") // now the model is deleted
	putModel(s.store, "m")
	s.look()
	s.wantStates("m 1 READY; n 1 READY")
}

// TestWrongChecksumAffectsOneModel checks that a config with a wrong checksum, which
// its uploader sets, affects no other model, neither at startup nor later.
func TestWrongChecksumAffectsOneModel(t *testing.T) {
	var damaged atomic.Bool
	damaged.Store(true)
	s := storing(t, func(_ *models.RegistryConfig, o *repository.Options) {
		o.Objects = mirrortest.WithSums(o.Objects, func(key string) bool { return damaged.Load() && key == "m/config.pbtxt" })
	}, []string{"m", "n"}, nil)
	if err := s.Start(t.Context()); err == nil || err.Error() != "failed to load all models" {
		t.Errorf("got error %v, want that of a model that does not load", err)
	}
	if got := states(s.Registry); !strings.Contains(got, "n 1 READY") || strings.Contains(got, "m 1 READY") {
		t.Errorf("got the index %q, want n alone to be ready", got)
	}
	putModel(s.store, "later")
	s.look()
	s.wantStates("later 1 READY; m; n 1 READY")
	if text := s.log.String(); !strings.Contains(text, "s3://bucket/models/m/config.pbtxt") || !strings.Contains(text, "ChecksumMismatch") {
		t.Errorf("the log does not name the object: %s", text)
	}
	s.wantLog("failed to poll model repository", 0)
	damaged.Store(false)
	s.look()
	s.wantStates("later 1 READY; m 1 READY; n 1 READY")
	damaged.Store(true)
	s.store.Put("m/config.pbtxt", latestConfig)
	s.look()
	s.look()
	s.wantStates("later 1 READY; m 1 READY; n 1 READY") // the loaded version still serves
	wantGeneration(t, s.Registry, "m", 1, 1)
}
