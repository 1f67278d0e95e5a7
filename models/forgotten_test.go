package models_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
)

// failingUploads loads models of new names from uploads, concurrently, that all fail with a long
// text.
func failingUploads(t *testing.T, r *models.Registry, b *fakeBackend, prefix string, count int) {
	t.Helper()
	long := &infer.Error{Code: infer.Internal, Message: strings.Repeat("abcd", 4000)}
	b.mu.Lock()
	for i := range count {
		b.failures[fmt.Sprintf("%s%d:1", prefix, i)] = long
	}
	b.mu.Unlock()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < count; i += 4 {
				name := fmt.Sprintf("%s%d", prefix, i)
				wantError(t, r.Load(t.Context(), name, configWith(t, "", nil), filesNamed("1/m")), infer.InvalidArg,
					"load failed for model '"+name+"': version 1 is at UNAVAILABLE state: "+long.Status()+";\n")
			}
		})
	}
	all.Wait()
}

// knownOf counts the models of a prefix of which the catalog knows something.
func knownOf(t *testing.T, b *fakeBackend, prefix string, count int) (known int) {
	t.Helper()
	for i := range count {
		if b.knows(t, fmt.Sprintf("%s%d", prefix, i), infer.LatestVersion) {
			known++
		}
	}
	return known
}

// TestUploadsAreForgotten checks that the catalog keeps failed and unloaded models, until very many
// are left, and that it never forgets models that serve or have a directory.
func TestUploadsAreForgotten(t *testing.T) {
	r, b, _, _ := overriding(t)
	load := func(name, config string, files ...string) {
		t.Helper()
		if err := r.Load(t.Context(), name, config, filesNamed(files...)); err != nil {
			t.Fatal(err)
		}
	}
	config := configWith(t, "", nil)
	load("serving", config, "1/m")
	load("unloaded", config, "1/m")
	unload(t, r, "unloaded", false)
	load("n", config, "1/m")
	unload(t, r, "n", false)
	waiting := `{"platform":"ensemble","ensemble_scheduling":{"step":[{"model_name":"absent","model_version":-1,"input_map":{"IN":"IN"},"output_map":{"OUT":"OUT"}}]},` +
		strings.TrimPrefix(strings.ReplaceAll(config, `"backend":"fake",`, ""), "{")
	wantError(t, r.Load(t.Context(), "waiting", waiting, filesNamed("1/m")), infer.InvalidArg,
		"load failed for model 'waiting': ensemble waiting contains models that are not available or ambiguous: absent\n")
	uploads := len(left(t))
	const few, many = 50, 300
	failingUploads(t, r, b, "few", few)
	if n := knownOf(t, b, "few", few); n != few || !b.knows(t, "unloaded", 1) || !b.knows(t, "waiting", 1) || len(left(t)) != uploads {
		t.Errorf("%d of %d failed loads are known", n, few)
	}
	failingUploads(t, r, b, "many", many)
	if n := knownOf(t, b, "many", many); n < 50 || n > 150 { // some 33 KiB each
		t.Errorf("%d of %d failed loads are known", n, many)
	}
	if n := knownOf(t, b, "few", few); n != 0 {
		t.Errorf("%d of the oldest failed loads are known", n)
	}
	if b.knows(t, "unloaded", infer.LatestVersion) || b.knows(t, "waiting", infer.LatestVersion) {
		t.Error("the oldest models are known")
	}
	if n := len(left(t)); n != uploads-1 {
		t.Errorf("%d uploads are left, want %d: those of models that serve", n, uploads-1)
	}
	wantGeneration(t, r, "serving", 1, 1)
	wantStates(t, r, "m 1 READY; n 1 UNAVAILABLE unloaded")
	if ready, err := r.Ready(t.Context()); ready || err != nil {
		t.Errorf("ready: %v, %v", ready, err)
	}
	wantNoOperations(t, r)
	load("few0", `{"backend":"fake","parameters":{"tag":{"string_value":"x"}},"version_policy":{"all":{}}}`, "2/m") // a forgotten name
	if versions := r.ReadyVersions("few0"); len(versions) != 1 {
		t.Errorf("versions %d are ready", versions)
	}
}

// TestTextsOfManyFailedVersionsAreBounded loads a model of which all of many versions fail with
// long texts.
func TestTextsOfManyFailedVersionsAreBounded(t *testing.T) {
	r, b, _, _ := overriding(t)
	const many = 200
	files := make(map[string][]byte)
	for n := range many {
		number := n + 1
		files[fmt.Sprintf("%d/m", number)] = nil
		b.failures[fmt.Sprintf("fresh:%d", number)] = &infer.Error{
			Code: infer.Internal, Message: strings.Repeat("t", 5000), Detail: strings.Repeat("d", 5000),
		}
	}
	err := infer.AsError(r.Load(t.Context(), "fresh", configWith(t, "", nil), files))
	const first = "load failed for model 'fresh': version 1 is at UNAVAILABLE state: Internal: t"
	for text, letter := range map[string]string{err.Message: "t", err.Detail: "d"} {
		listed := strings.Count(text, " is at UNAVAILABLE state: Internal: "+letter)
		if !strings.HasPrefix(text, strings.ReplaceAll(first, ": t", ": "+letter)) || !strings.HasSuffix(text, fmt.Sprintf("…; and %d more versions\n", many-listed)) || len(text) > 40<<10 || listed < 50 {
			t.Errorf("got %d bytes with %d of %d versions: %.100s, and at the end %s", len(text), listed, many, text, text[len(text)-100:])
		}
	}
	total, shown := 0, 0
	for _, v := range r.Overview() {
		if v.Name == "fresh" {
			total += len(v.Reason)
			shown++
		}
	}
	if shown != many || total > 64<<10 {
		t.Errorf("%d versions have %d bytes of reasons", shown, total)
	}
}

// TestFailedRegistrationsAreForgotten checks that models of registered directories that fail to
// load under ever new names leave a limited number of records.
func TestFailedRegistrationsAreForgotten(t *testing.T) {
	b := newFakeBackend()
	r := emptyRegistry(t, b)
	path := writeModels(t, map[string][]int64{"dir": {1}})
	const many = 400
	for i := range many {
		name := fmt.Sprintf("new%d", i)
		b.failures[name+":1"] = errors.New(strings.Repeat("x", 16000))
		if err := r.RegisterRepository(path, "dir", name); err != nil {
			t.Fatal(err)
		}
		if err := r.Load(t.Context(), name, "", nil); err == nil {
			t.Fatal("the load succeeded")
		}
		if err := r.Unload(t.Context(), name, false); err != nil {
			t.Fatal(err)
		}
		if err := r.UnregisterRepository(path); err != nil {
			t.Fatal(err)
		}
		delete(b.failures, name+":1")
	}
	if n := knownOf(t, b, "new", many); n > 300 || n < 100 {
		t.Errorf("the catalog knows %d of %d models that are gone", n, many)
	}
}

// TestManyVersionsLoadTogether checks that a model with more versions than goroutines loads.
func TestManyVersionsLoadTogether(t *testing.T) {
	r, b, _, _ := overriding(t)
	files := make(map[string][]byte)
	for n := range 100 { // the registry has 64 goroutines for them
		files[filepath.Join(fmt.Sprint(n+1), "m")] = nil
	}
	if err := r.Load(t.Context(), "fresh", configWith(t, "", nil), files); err != nil {
		t.Fatal(err)
	}
	if n := len(r.ReadyVersions("fresh")); n != len(files) || b.most > 4 {
		t.Errorf("%d of %d versions are ready, %d were loaded at once", n, len(files), b.most)
	}
}
