package models_test

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/config"
)

// overriding returns a registry that has models "m" and "n" on disk and m loaded, and its log.
func overriding(t *testing.T) (r *models.Registry, b *fakeBackend, root string, log *testkit.Buffer) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	b, log = newFakeBackend(), &testkit.Buffer{}
	root = writeModels(t, map[string][]int64{"m": {1}, "n": {1}})
	r = startRegistry(t, root, b, func(c *models.RegistryConfig) {
		explicit("m")(c)
		c.Log = zerolog.New(log)
	})
	return r, b, root, log
}

// filesNamed returns files of these names. The content of each is the last element of its name in
// capitals.
func filesNamed(names ...string) map[string][]byte {
	files := make(map[string][]byte)
	for _, name := range names {
		files[name] = []byte(strings.ToUpper(path.Base(name)))
	}
	return files
}

// lastOpened returns the directory of the version that was opened last, and the parameter "tag" of
// its config, or "".
func lastOpened(b *fakeBackend) (directory, tag string) {
	env := b.lastEnv()
	return env.Directory, env.Config.GetParameters()["tag"].GetStringValue()
}

// left lists the uploads that exist now.
func left(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "nereid-models-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantLeft waits until only these uploads exist.
func wantLeft(t *testing.T, want ...string) {
	t.Helper()
	var found []string
	if !testkit.Within(patience, func() bool {
		found = left(t)
		return slices.Equal(found, want)
	}) {
		t.Errorf("the uploads %q are there, want %q", found, want)
	}
}

func TestConfigOverrideLastsUntilTheModelChanges(t *testing.T) {
	r, b, root, _ := overriding(t)
	load := func(name, config string, generations int64, tag string) {
		t.Helper()
		if err := r.Load(t.Context(), name, config, nil); err != nil {
			t.Fatal(err)
		}
		wantGeneration(t, r, name, 1, generations)
		if directory, got := lastOpened(b); got != tag || directory != filepath.Join(root, name) {
			t.Errorf("got tag %q in %s, want %q in the repository", got, directory, tag)
		}
	}
	load("m", configWith(t, "one", nil), 2, "one")
	info, err := r.Model("m", 1)
	if err != nil || info.Config.GetParameters()["tag"].GetStringValue() != "one" || !strings.Contains(string(info.JSON), `"one"`) {
		t.Errorf("the config is %v, %v", info, err)
	}
	load("m", "", 2, "one") // the override is kept
	load("m", configWith(t, "two", nil), 3, "two")

	// A failed load changes nothing.
	b.failures["m:1"] = infer.Errorf(infer.Internal, "worse")
	wantError(t, r.Load(t.Context(), "m", configWith(t, "three", nil), nil), infer.InvalidArg,
		"load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: worse;\n")
	delete(b.failures, "m:1")
	if err := r.Load(t.Context(), "m", "{", nil); err == nil {
		t.Error("a config that is no JSON is accepted")
	}
	if err := r.Load(t.Context(), "m", "", nil); err != nil {
		t.Error(err)
	}
	wantGeneration(t, r, "m", 1, 3)

	// A change in the directory, at any depth, drops the override.
	for generation, path := range []string{"config.pbtxt", "1/new/data", "labels"} {
		whole := filepath.Join(root, "m", path)
		if err := os.MkdirAll(filepath.Dir(whole), 0o755); err != nil {
			t.Fatal(err)
		}
		if file, err := os.OpenFile(whole, os.O_CREATE, 0o644); err != nil {
			t.Fatal(err)
		} else {
			file.Close()
		}
		if err := r.Load(t.Context(), "m", configWith(t, path, nil), nil); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Duration(generation+1) * time.Hour)
		if err := os.Chtimes(whole, later, later); err != nil {
			t.Fatal(err)
		}
		load("m", "", int64(6+2*generation), "")
	}

	// So does an unload.
	load("m", configWith(t, "four", nil), 11, "four")
	unload(t, r, "m", false)
	load("m", "", 12, "")

	// An override also works for a model that was never loaded.
	load("n", configWith(t, "five", nil), 1, "five")
	load("n", "", 1, "five")
	if found := left(t); len(found) != 0 {
		t.Errorf("%q are there, though there were no files", found)
	}
}

func TestFileOverrideServesUploadedFiles(t *testing.T) {
	r, b, root, _ := overriding(t)
	before := states(r)
	load := func(name string, more map[string]any, names ...string) string {
		t.Helper()
		if err := r.Load(t.Context(), name, configWith(t, "files", more), filesNamed(names...)); err != nil {
			t.Fatal(err)
		}
		directory, tag := lastOpened(b)
		if tag != "files" || strings.HasPrefix(directory, root) {
			t.Errorf("got tag %q in %s", tag, directory)
		}
		return directory
	}
	labelled := map[string]any{"name": "fresh", "output": []any{map[string]any{"name": "OUT", "data_type": "TYPE_INT32", "dims": []int{1}, "label_filename": "labels"}}}
	first := load("fresh", labelled, "1/m", "3/m", "04/m", "labels")
	wantLeft(t, first)
	if got := testkit.Tree(t, first); !strings.HasPrefix(got, `04/ 700; 04/m 600 "M"; 1/ 700; 1/m 600 "M"; 3/ 700; 3/m 600 "M"; config.pbtxt 600 "`) || !strings.HasSuffix(got, `; labels 600 "LABELS"`) {
		t.Errorf("the directory has %s", got)
	}
	text, err := os.ReadFile(filepath.Join(first, "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	if config, err := config.ParseText("config.pbtxt", text); err != nil || config.GetParameters()["tag"].GetStringValue() != "files" {
		t.Errorf("config.pbtxt: %v, %v", config, err)
	}
	if versions := r.ReadyVersions("fresh"); !slices.Equal(versions, []int64{1, 3}) {
		t.Errorf("versions %d are ready, want 1 and 3", versions)
	}
	if info, err := r.Model("fresh", 3); err != nil || !slices.Equal(info.Labels["OUT"], []string{"LABELS"}) {
		t.Errorf("got %v, %v, want the labels", info, err)
	}
	wantGeneration(t, r, "fresh", 3, 1)
	if got := states(r); got != before {
		t.Errorf("the index shows %q, want as before: %q", got, before)
	}
	if ready, err := r.Ready(t.Context()); !ready || err != nil {
		t.Errorf("ready: %v, %v", ready, err)
	}

	// A request in flight in the replaced version still has its files.
	hold := b.holdExecute("fresh:1")
	answered := make(chan error, 1) // one value
	go func() {
		_, err := generation(t, r, "fresh", 1)
		answered <- err
	}()
	testkit.Eventually(t, patience, func() bool { return len(r.InFlight()) > 0 })
	if err := r.Load(t.Context(), "fresh", configWith(t, "files", nil), filesNamed("1/m")); err != nil {
		t.Fatal(err)
	}
	second, _ := lastOpened(b)
	if found := left(t); !slices.Contains(found, first) || !slices.Contains(found, second) || first == second {
		t.Errorf("got %q, want %s and %s", found, first, second)
	}
	close(hold)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	wantLeft(t, second)
	if versions := r.ReadyVersions("fresh"); !slices.Equal(versions, []int64{1}) {
		t.Errorf("versions %d are ready, want 1", versions)
	}

	// A failed load leaves the serving version in place and no files of its own.
	b.failures["fresh:2"] = infer.Errorf(infer.Internal, "worse")
	wantError(t, r.Load(t.Context(), "fresh", configWith(t, "", nil), filesNamed("1/m", "2/m")), infer.InvalidArg,
		"load failed for model 'fresh': version 2 is at UNAVAILABLE state: Internal: worse;\n")
	for _, config := range []string{"", configWith(t, "", nil)} {
		wantError(t, r.Load(t.Context(), "fresh", config, nil), infer.Internal, "failed to load 'fresh', failed to poll from model repository")
	}
	wantError(t, r.Load(t.Context(), "none", configWith(t, "", nil), filesNamed("m")), infer.InvalidArg,
		"load failed for model 'none': at least one version must be available under the version policy of model 'none'\n")
	wantLeft(t, second)
	wantGeneration(t, r, "fresh", 1, 2)

	// A model of the repository is served from uploaded files until a load without files.
	load("m", nil, "1/m")
	if got := states(r); got != before {
		t.Errorf("the index shows %q, want %q", got, before)
	}
	mustLoad(t, r, "m")
	if directory, tag := lastOpened(b); directory != filepath.Join(root, "m") || tag != "" {
		t.Errorf("got tag %q in %s, want the repository", tag, directory)
	}
	unload(t, r, "fresh", false)
	wantLeft(t)
}

func TestOverridesAreRefused(t *testing.T) {
	r, b, _, log := overriding(t)
	const poll = "Poll failed for model directory '%s': "
	good := configWith(t, "", nil)
	for _, test := range []struct {
		name, config string
		files        map[string][]byte
		want         string // expected in the log
	}{
		{"m", "{bad", nil, "Invalid config override: "},
		{"m", " ", nil, "Invalid config override: "},
		{"m", `{"nope":1}`, nil, "Invalid config override: nope: Cannot find field."},
		{"m", "null", nil, "Invalid config override: "},
		{"m", configWith(t, "", map[string]any{"name": "n"}), nil, "unexpected directory name 'm' for model 'n', directory name must equal model name"},
		{"fresh", configWith(t, "", map[string]any{"name": "n"}), filesNamed("1/m"), "unexpected directory name 'fresh' for model 'n', directory name must equal model name"},
		{"m", "", filesNamed("1/m"), "Load parameter 'config' must be specified for model file override"},
		{"fresh", "", filesNamed("1/m"), "Load parameter 'config' must be specified for model file override"},
		{"fresh", "{bad", filesNamed("1/m"), "Invalid config override: "},
		{"fresh", good, filesNamed("1/m", "../x"), "Invalid file parameter 'file:../x' with normalized path '"},
		{"fresh", good, filesNamed("1", "1/m"), "Invalid file parameter 'file:1/m', directory has been created as a file"},
		{"fresh", configWith(t, "", map[string]any{"max_batch_size": -1}), filesNamed("1/m"), ""},
		{"fr\x00esh", good, filesNamed("1/m"), ""},
		{".", good, filesNamed("1/m"), ""},
	} {
		already := len(log.String())
		wantError(t, r.Load(t.Context(), test.name, test.config, test.files), infer.Internal,
			"failed to load '"+test.name+"', failed to poll from model repository")
		var line struct{ Message string }
		lines := strings.Split(strings.TrimSpace(log.String()[already:]), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(poll, "%s", test.name) + test.want; !strings.HasPrefix(line.Message, want) {
			t.Errorf("the log says %q, want %q", line.Message, want)
		}
	}
	for name, want := range map[string]string{
		"": "Model name cannot be empty. Please enter a valid name to deploy.", " \t": "Model name cannot be empty. Please enter a valid name to deploy.",
		"..":  "invalid model name '..', model name must not contain path traversal characters",
		"a/b": "invalid model name 'a/b', model name must not contain path traversal characters",
	} {
		wantError(t, r.Load(t.Context(), name, good, filesNamed("1/m")), infer.InvalidArg, want)
	}
	if got := len(b.opened); got != 1 || len(left(t)) != 0 {
		t.Errorf("%d models were opened, %q are left", got, left(t))
	}
	wantGeneration(t, r, "m", 1, 1)
	for _, name := range []string{"fresh", "fr\x00esh", ".", "..", "a/b", "", " \t"} {
		if b.knows(t, name, infer.LatestVersion) {
			t.Errorf("of %q something is kept", name)
		}
	}

	// Uploads fail while TMPDIR is missing, and work when it exists again.
	place := os.Getenv("TMPDIR")
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Load(t.Context(), "fresh", good, filesNamed("1/m")), infer.Internal, "failed to load 'fresh', failed to poll from model repository")
	if want := "failed to create a directory for the files of requests: "; !strings.Contains(log.String(), want) {
		t.Errorf("the log has no %q", want)
	}
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "fresh", good, filesNamed("1/m")); err != nil {
		t.Error(err)
	}
}

// TestOverridesStormLeavesNoFiles loads, with and without files, and unloads the same models
// concurrently, and checks that no files are left.
func TestOverridesStormLeavesNoFiles(t *testing.T) {
	r, _, _, _ := overriding(t)
	var all sync.WaitGroup
	config := configWith(t, "", nil)
	for i := range 8 {
		all.Go(func() {
			for n := range 20 {
				name := []string{"m", "fresh"}[(i+n)%2]
				var err error
				switch n % 4 {
				case 0, 1:
					err = r.Load(t.Context(), name, config, filesNamed("1/m", "2/m"))
				case 2:
					err = r.Load(t.Context(), "m", config, nil)
				default:
					err = r.Unload(t.Context(), name, false)
				}
				if err != nil {
					t.Error(err)
				}
				_, _ = r.Index(false)
			}
		})
	}
	all.Wait()
	unload(t, r, "m", false)
	unload(t, r, "fresh", false)
	wantLeft(t)
}

// TestUploadsEndWithTheServer checks that uploaded files are removed at shutdown, also while a load
// of them is still running.
func TestUploadsEndWithTheServer(t *testing.T) {
	r, b, _, _ := overriding(t)
	if err := r.Load(t.Context(), "fresh", configWith(t, "", nil), filesNamed("1/m")); err != nil {
		t.Fatal(err)
	}
	held := b.holdStart("late:1")
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Load(context.Background(), "late", configWith(t, "", nil), filesNamed("1/m")) }()
	testkit.Eventually(t, patience, func() bool { return len(left(t)) == 2 && b.knows(t, "late", 1) })
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := testkit.Tree(t, os.TempDir()); got != "" {
		t.Errorf("%s is left", got)
	}
	close(held)
	wantError(t, <-ended, infer.Unavailable, "Server exiting")
	awaitUnloaded(t, r, "late")
	if got := testkit.Tree(t, os.TempDir()); got != "" {
		t.Errorf("%s is left", got)
	}
}
