package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// ensembleOf returns the config of an ensemble that passes its input through the models in turn. A
// step may be pinned to a version, as in "a:2".
func ensembleOf(steps ...string) string {
	text := `platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling {`
	for i, step := range steps {
		from, to := fmt.Sprintf("between%d", i), fmt.Sprintf("between%d", i+1)
		if i == 0 {
			from = "IN"
		}
		if i == len(steps)-1 {
			to = "OUT"
		}
		model, version, pinned := strings.Cut(step, ":")
		if !pinned {
			version = "-1"
		}
		text += fmt.Sprintf("\n  step { model_name: %q model_version: %s input_map { key: \"IN\" value: %q } output_map { key: \"OUT\" value: %q } }", model, version, from, to)
	}
	return text + "\n}\n"
}

// withEnsembles writes a repository of fake models and of ensembles, given by their steps.
func withEnsembles(t *testing.T, versions map[string][]int64, ensembles map[string]string) string {
	t.Helper()
	all := map[string][]int64{}
	for name, numbers := range versions {
		all[name] = numbers
	}
	for name := range ensembles {
		all[name] = []int64{1}
	}
	root := writeModels(t, all)
	for name, steps := range ensembles {
		writeConfig(t, root, name, ensembleOf(strings.Fields(steps)...))
	}
	return root
}

// TestEnsemblesFollowTheirModels loads and unloads models in explicit mode and checks the index and
// the errors. Their texts are Triton's.
func TestEnsemblesFollowTheirModels(t *testing.T) {
	const notThere = "ensemble %s contains models that are not available or ambiguous: %s\n"
	b := newFakeBackend()
	b.failures["bad:1"] = infer.Errorf(infer.Internal, "no")
	root := withEnsembles(t, map[string][]int64{"a": {1}, "b": {1}, "c": {1}, "d": {1}, "bad": {1}, "none": {}},
		map[string]string{"e": "a b", "top": "e c", "missing": "a later", "self": "self", "one": "two", "two": "one",
			"broken": "bad", "above": "broken", "pinned": "a:3", "empty": "none", "pair": "c d"})
	r := startRegistry(t, root, b, explicit())
	known := func() string {
		var list []string
		index, err := r.Index(false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range index {
			if e.GetState() != "" {
				list = append(list, e.GetName()+" "+e.GetState())
			}
		}
		return strings.Join(list, ", ")
	}
	load := func(name, want string) {
		t.Helper()
		if err := r.Load(t.Context(), name, "", nil); want != "" {
			wantError(t, err, infer.InvalidArg, "load failed for model '"+name+"': "+want)
		} else if err != nil {
			t.Errorf("load %s: %v", name, err)
		}
	}
	unload := func(name string, dependents bool) {
		t.Helper()
		if err := r.Unload(t.Context(), name, dependents); err != nil {
			t.Errorf("unload %s: %v", name, err)
		}
	}
	wantKnown := func(want string) {
		t.Helper()
		got := ""
		if !testkit.Within(patience, func() bool { // until the unloaded versions have ended
			got = known()
			return got == want
		}) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	load("missing", fmt.Sprintf(notThere, "missing", "later"))
	wantKnown("a READY") // it stays loaded, as in Triton
	load("self", "circular dependency between ensembles: self -> ... -> self -> self\n")
	load("one", "circular dependency between ensembles: one -> ... -> two -> one\n")
	const why = "ensemble 'broken' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: version 1 is at UNAVAILABLE state: Internal: no;"
	load("broken", why+"\n")
	load("above", "ensemble 'above' depends on 'broken' which is not valid. Model 'broken' failed with error: "+why+"\n")
	load("pinned", "ensemble 'pinned' depends on 'a' whose required version 3 is not loaded.\n")
	load("empty", "ensemble 'empty' depends on 'none' which has no loaded version. Model 'none' loading failed with error: "+
		"at least one version must be available under the version policy of model 'none'\n")
	wantKnown("a READY, bad UNAVAILABLE")
	load("top", "")
	wantKnown("a READY, b READY, bad UNAVAILABLE, c READY, e READY, top READY")
	if b.opened["a:1"] != 1 || b.opened["b:1"] != 1 {
		t.Errorf("loaded %v", b.opened)
	}

	unload("a", false) // the ensembles that use it are unloaded and loaded with it
	wantKnown("a UNAVAILABLE, b READY, bad UNAVAILABLE, c READY, e UNAVAILABLE, top UNAVAILABLE")
	_, err := generation(t, r, "e", infer.LatestVersion)
	wantError(t, err, infer.NotFound, "Request for unknown model: 'e' has no available versions")
	load("a", "")
	wantKnown("a READY, b READY, bad UNAVAILABLE, c READY, e READY, top READY")

	// The missing model appears.
	if err := os.MkdirAll(filepath.Join(root, "later", "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, root, "later", fakeConfig)
	load("later", "")
	wantKnown("a READY, b READY, bad UNAVAILABLE, c READY, e READY, later READY, missing READY, top READY")

	// Models that were loaded only for an ensemble are unloaded with it if the request says so.
	load("c", "") // it is loaded already, so this does not count as a load by name
	load("pair", "")
	load("d", "")
	unload("pair", true)
	wantKnown("a READY, b READY, bad UNAVAILABLE, c READY, d UNAVAILABLE, e READY, later READY, missing READY, pair UNAVAILABLE, top READY")
	unload("missing", false)
	unload("top", true) // a was loaded by its name, so it stays
	wantKnown("a READY, b UNAVAILABLE, bad UNAVAILABLE, c UNAVAILABLE, d UNAVAILABLE, e UNAVAILABLE, later READY, missing UNAVAILABLE, pair UNAVAILABLE, top UNAVAILABLE")

	// Loading b does not bring back ensembles that were unloaded on request.
	load("b", "")
	wantKnown("a READY, b READY, bad UNAVAILABLE, c UNAVAILABLE, d UNAVAILABLE, e UNAVAILABLE, later READY, missing UNAVAILABLE, pair UNAVAILABLE, top UNAVAILABLE")

	// Loading a repaired model also loads its ensembles.
	delete(b.failures, "bad:1")
	load("bad", "")
	for _, name := range []string{"above", "broken"} {
		if len(r.ReadyVersions(name)) != 1 {
			t.Errorf("%s is not ready", name)
		}
	}
	wantNoOperations(t, r)
}

// TestEnsemblesAreLoadedAfterTheirModels checks that models are loaded in the order of their
// dependencies, each once.
func TestEnsemblesAreLoadedAfterTheirModels(t *testing.T) {
	root := withEnsembles(t, map[string][]int64{"z": {1}, "y": {1}}, map[string]string{"a": "b z", "b": "c y", "c": "y"})
	for name, change := range map[string]func(*models.RegistryConfig){"all": nil, "explicit": explicit("a")} {
		b := newFakeBackend()
		r := newTestRegistry(t, root, b, change)
		if err := r.Start(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := states(r), "a 1 READY; b 1 READY; c 1 READY; y 1 READY; z 1 READY"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if b.opened["y:1"] != 1 || b.opened["z:1"] != 1 {
			t.Errorf("%s: loaded %v", name, b.opened)
		}
		if ready, err := r.Ready(t.Context()); !ready || err != nil {
			t.Errorf("%s: ready %v, %v", name, ready, err)
		}
	}
}
