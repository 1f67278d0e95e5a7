package models

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestNamespacesRefuseAmbiguousNames checks that requests are rejected if two repositories have a
// model of that name. The texts are Triton's.
func TestNamespacesRefuseAmbiguousNames(t *testing.T) {
	roots := []string{WriteModels(t, map[string][]int64{"a": {1}, "b": {1}}), WriteModels(t, map[string][]int64{"a": {1, 2}})}
	open := func(change func(*RegistryConfig)) (*Registry, *fakeBackend) {
		opened, err := repository.Open(roots, repository.Options{Namespacing: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Close)
		b := NewFakeBackend()
		return NewTestRegistry(t, roots[0], b, func(c *RegistryConfig) {
			c.Repository.Close()
			c.Repository = opened
			if change != nil {
				change(c)
			}
		}), b
	}
	const ambiguous = "There are 2 identifiers of model 'a' in global map, model namespace must be provided to resolve ambiguity."
	r, _ := open(nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	index := strings.Split(states(r), "; ")
	slices.Sort(index)
	if got, want := strings.Join(index, "; "), "a 1 READY; a 1 READY; a 2 READY; b 1 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	wantGeneration(t, r, "b", 1, 1)
	_, err := generation(t, r, "a", 1)
	WantError(t, err, infer.InvalidArg, ambiguous)
	_, err = generation(t, r, "nope", 1)
	WantError(t, err, infer.InvalidArg, "Request for unknown model: 'nope' is not found")
	_, err = r.servedAs("nope") // the lookup for the model's instances
	WantError(t, err, infer.NotFound, "Request for unknown model: 'nope' is not found")
	_, err = r.servedAs("a")
	WantError(t, err, infer.InvalidArg, ambiguous)
	_, err = r.Statistics("a", infer.LatestVersion)
	WantError(t, err, infer.InvalidArg, "requested model 'a' is not available")
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

	r, b := open(Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "a", "", nil); err != nil { // loads every model of that name
		t.Fatal(err)
	}
	if b.Opened["a:1"] != 2 || b.Opened["a:2"] != 1 {
		t.Errorf("opened %v", b.Opened)
	}
	_, err = generation(t, r, "a", 1)
	WantError(t, err, infer.InvalidArg, ambiguous)
	WantError(t, r.Load(t.Context(), "nope", "", nil), infer.Internal, "failed to load 'nope', failed to poll from model repository")
	if err := r.Unload(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	r.ending.Wait()
	_, err = generation(t, r, "a", 1)
	WantError(t, err, infer.NotFound, "Identifier of model 'a' is not found in global map")
	// A name that only one repository has is no longer ambiguous.
	if err := os.RemoveAll(filepath.Join(roots[0], "a")); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "a", "", nil); err != nil {
		t.Fatal(err)
	}
	if info, err := r.Model("a", infer.LatestVersion); err != nil || info.Version != 2 {
		t.Errorf("got %+v, %v, want version 2", info, err)
	}
}

// TestEnsemblesUseTheirOwnNamespace loads ensembles of two repositories whose composing model
// exists in both, and checks that a model loaded for the first ensemble does not replace the model
// in the second ensemble's own repository.
func TestEnsemblesUseTheirOwnNamespace(t *testing.T) {
	roots := []string{WriteModels(t, map[string][]int64{"a": {1}, "d": {1}}), WriteModels(t, map[string][]int64{"e": {1}, "late": {1}})}
	for i, name := range []string{"d", "e", "late"} {
		writeConfig(t, roots[min(i, 1)], name, ensembleOf("a"))
	}
	r := NewTestRegistry(t, roots[0], NewFakeBackend(), func(c *RegistryConfig) {
		c.Repository.Close()
		opened, err := repository.Open(roots, repository.Options{Namespacing: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Close)
		c.Repository = opened
		Explicit()(c)
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	meant := func(ensemble string) repository.Identity {
		v, err := r.catalog.Latest(repository.Identity{Name: "a"}, repository.Identity{Namespace: roots[1], Name: ensemble})
		if err != nil {
			t.Fatal(err)
		}
		return v.Info().Identity()
	}
	for _, step := range []struct{ load, ready, meant string }{
		{"d", "a 1 READY; d 1 READY", ""},
		{"e", "a 1 READY; d 1 READY; e 1 READY", roots[0]}, // only this repository has one
		{"late", "a 1 READY; a 2 READY; d 1 READY; e 1 READY; late 1 READY", roots[1]},
	} {
		if step.load == "late" { // now both repositories have one
			if err := os.MkdirAll(filepath.Join(roots[1], "a", "2"), 0o755); err != nil {
				t.Fatal(err)
			}
			writeConfig(t, roots[1], "a", FakeConfig)
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
			if got, want := meant(step.load), (repository.Identity{Namespace: step.meant, Name: "a"}); got != want {
				t.Errorf("%s is composed of %s, want %s", step.load, got, want)
			}
		}
	}
}

// TestEnsembleWhoseNeighbourLeaves removes a composing model from its ensemble's repository and
// checks that the ensemble calls the model of that name in the other repository, and its own again
// when it is back. In explicit mode this takes an unload and loads.
func TestEnsembleWhoseNeighbourLeaves(t *testing.T) {
	for _, mode := range []string{"poll", "explicit"} {
		t.Run(mode, func(t *testing.T) {
			roots := []string{WriteModels(t, map[string][]int64{"a": {1}, "e": {1}}), WriteModels(t, map[string][]int64{"a": {1}})}
			writeConfig(t, roots[0], "e", ensembleOf("a"))
			r := NewTestRegistry(t, roots[0], NewFakeBackend(), func(c *RegistryConfig) {
				c.Repository.Close()
				opened, err := repository.Open(roots, repository.Options{Namespacing: true})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(opened.Close)
				c.Repository = opened
				if mode == "explicit" {
					Explicit("e")(c)
				}
			})
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			p := newPoller(r)
			again := func() {
				t.Helper()
				if mode == "explicit" {
					mustLoad(t, r, "e")
				} else {
					p.look(r.polling)
					r.polls.Wait()
				}
				r.ending.Wait()
			}
			calls := func(when, root string) {
				t.Helper()
				l, err := r.lookup("e", 1)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				want := repository.Identity{Namespace: root, Name: "a"}
				if len(l.Composing()) != 1 || !l.Composing()[want] {
					t.Errorf("%s: the ensemble calls %v, want %s", when, l.Composing().Sorted(), want)
				}
				part, err := view{r}.Hold(l.Composing().Sorted()[0], infer.LatestVersion)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				part.Release()
			}
			calls("at first", roots[0])
			away := filepath.Join(t.TempDir(), "a")
			if err := os.Rename(filepath.Join(roots[0], "a"), away); err != nil {
				t.Fatal(err)
			}
			if mode == "explicit" {
				// The loaded model stays in use, as in Triton.
				again()
				calls("while its neighbour is loaded", roots[0])
				if err := r.Unload(t.Context(), "a", false); err != nil {
					t.Fatal(err)
				}
			}
			again()
			calls("without its neighbour", roots[1])
			if err := os.Rename(away, filepath.Join(roots[0], "a")); err != nil {
				t.Fatal(err)
			}
			again()
			calls("with its neighbour again", roots[0])
		})
	}
}
