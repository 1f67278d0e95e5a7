package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
)

// TestNamespacesRefuseAmbiguousNames checks that requests are rejected if two repositories have a
// model of that name. The texts are Triton's.
func TestNamespacesRefuseAmbiguousNames(t *testing.T) {
	roots := []string{writeModels(t, map[string][]int64{"a": {1}, "b": {1}}), writeModels(t, map[string][]int64{"a": {1, 2}})}
	b := newFakeBackend()
	const ambiguous = "There are 2 identifiers of model 'a' in global map, model namespace must be provided to resolve ambiguity."
	r := startRegistry(t, roots[0], newFakeBackend(), namespaced(t, roots...))
	index := strings.Split(states(r), "; ")
	slices.Sort(index)
	if got, want := strings.Join(index, "; "), "a 1 READY; a 1 READY; a 2 READY; b 1 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	wantGeneration(t, r, "b", 1, 1)
	_, err := generation(t, r, "a", 1)
	wantError(t, err, infer.InvalidArg, ambiguous)
	_, err = generation(t, r, "nope", 1)
	wantError(t, err, infer.InvalidArg, "Request for unknown model: 'nope' is not found")
	_, err = r.Statistics("a", infer.LatestVersion)
	wantError(t, err, infer.InvalidArg, "requested model 'a' is not available")
	if list, err := r.Statistics("", infer.LatestVersion); err != nil || len(list) != 4 {
		t.Errorf("got %d statistics, %v, want 4", len(list), err)
	}
	var rows []string
	for _, s := range r.Attempted() {
		rows = append(rows, fmt.Sprintf("%s %d", s.Name, s.Version))
	}
	if want := roots[0] + "::a 1"; !slices.Contains(rows, want) || len(rows) != 4 {
		t.Errorf("got the table %q, want %q in it", rows, want)
	}

	r = startRegistry(t, roots[0], b, func(c *models.RegistryConfig) {
		namespaced(t, roots...)(c)
		c.Explicit = true
	})
	if err := r.Load(t.Context(), "a", "", nil); err != nil { // loads every model of that name
		t.Fatal(err)
	}
	if b.opened["a:1"] != 2 || b.opened["a:2"] != 1 {
		t.Errorf("opened %v", b.opened)
	}
	_, err = generation(t, r, "a", 1)
	wantError(t, err, infer.InvalidArg, ambiguous)
	_, err = r.SetInstances(t.Context(), "a", "", 1)
	wantError(t, err, infer.InvalidArg, ambiguous)
	_, err = r.SetInstances(t.Context(), "nope", "", 1)
	wantError(t, err, infer.NotFound, "Request for unknown model: 'nope' is not found")
	wantError(t, r.Load(t.Context(), "nope", "", nil), infer.Internal, "failed to load 'nope', failed to poll from model repository")
	unload(t, r, "a", false)
	_, err = generation(t, r, "a", 1)
	wantError(t, err, infer.NotFound, "Identifier of model 'a' is not found in global map")
	// A name that only one repository has is no longer ambiguous.
	if err := os.RemoveAll(filepath.Join(roots[0], "a")); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, r, "a")
	if info, err := r.Model("a", infer.LatestVersion); err != nil || info.Version != 2 {
		t.Errorf("got %+v, %v, want version 2", info, err)
	}
}

// wantExecuted sends a request to an ensemble and checks the directory of the model that runs it.
func wantExecuted(t *testing.T, r *models.Registry, b *fakeBackend, ensemble, directory string) {
	t.Helper()
	if err := r.Infer(t.Context(), oneInput(ensemble), func(response *infer.Response) {
		if response.Err != nil {
			t.Errorf("%s: %v", ensemble, response.Err)
		}
	}); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.executed != directory {
		t.Errorf("%s was run by %s, want %s", ensemble, b.executed, directory)
	}
}

// TestEnsemblesUseTheirOwnNamespace loads ensembles of two repositories whose composing model
// exists in both, and checks that a model loaded for the first ensemble does not replace the model
// in the second ensemble's own repository.
func TestEnsemblesUseTheirOwnNamespace(t *testing.T) {
	roots := []string{writeModels(t, map[string][]int64{"a": {1}, "d": {1}}), writeModels(t, map[string][]int64{"e": {1}, "late": {1}})}
	for i, name := range []string{"d", "e", "late"} {
		writeConfig(t, roots[min(i, 1)], name, ensembleOf("a"))
	}
	b := newFakeBackend()
	r := startRegistry(t, roots[0], b, func(c *models.RegistryConfig) {
		namespaced(t, roots...)(c)
		c.Explicit = true
	})
	for _, step := range []struct{ load, ready, meant string }{
		{"d", "a 1 READY; d 1 READY", ""},
		{"e", "a 1 READY; d 1 READY; e 1 READY", roots[0]}, // only this repository has one
		{"late", "a 1 READY; a 2 READY; d 1 READY; e 1 READY; late 1 READY", roots[1]},
	} {
		if step.load == "late" { // now both repositories have one
			if err := os.MkdirAll(filepath.Join(roots[1], "a", "2"), 0o755); err != nil {
				t.Fatal(err)
			}
			writeConfig(t, roots[1], "a", fakeConfig)
		}
		if err := r.Load(t.Context(), step.load, "", nil); err != nil {
			t.Fatalf("load %s: %v", step.load, err)
		}
		index := slices.DeleteFunc(strings.Split(states(r), "; "), func(s string) bool { return !strings.HasSuffix(s, "READY") })
		slices.Sort(index)
		if got := strings.Join(index, "; "); got != step.ready {
			t.Errorf("after the load of %s: got %q, want %q", step.load, got, step.ready)
		}
		if step.meant != "" {
			wantExecuted(t, r, b, step.load, filepath.Join(step.meant, "a"))
		}
	}
}

// TestEnsembleFollowsItsNamespace removes a composing model from its ensemble's repository and
// checks that the ensemble calls the model of that name in the other repository, and its own again
// when it is back. In explicit mode this takes an unload and loads.
func TestEnsembleFollowsItsNamespace(t *testing.T) {
	for _, mode := range []string{"poll", "explicit"} {
		t.Run(mode, func(t *testing.T) {
			roots := []string{writeModels(t, map[string][]int64{"a": {1}, "e": {1}}), writeModels(t, map[string][]int64{"a": {1}})}
			writeConfig(t, roots[0], "e", ensembleOf("a"))
			b := newFakeBackend()
			r := startRegistry(t, roots[0], b, func(c *models.RegistryConfig) {
				namespaced(t, roots...)(c)
				if mode == "explicit" {
					explicit("e")(c)
				}
			})
			p := models.NewPoller(r)
			again := func() {
				t.Helper()
				if mode == "explicit" {
					mustLoad(t, r, "e")
				} else {
					p.Look()
				}
				p.Settle()
			}
			calls := func(root string) {
				t.Helper()
				wantExecuted(t, r, b, "e", filepath.Join(root, "a"))
			}
			calls(roots[0])
			away := filepath.Join(t.TempDir(), "a")
			if err := os.Rename(filepath.Join(roots[0], "a"), away); err != nil {
				t.Fatal(err)
			}
			if mode == "explicit" {
				// The loaded model stays in use, as in Triton.
				again()
				calls(roots[0])
				if err := r.Unload(t.Context(), "a", false); err != nil {
					t.Fatal(err)
				}
			}
			again()
			calls(roots[1])
			if err := os.Rename(away, filepath.Join(roots[0], "a")); err != nil {
				t.Fatal(err)
			}
			again()
			calls(roots[0])
		})
	}
}
