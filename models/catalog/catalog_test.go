package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// unloadedModels returns a catalog of models whose version 1 is unloaded.
func unloadedModels(t *testing.T, names ...string) *Catalog {
	t.Helper()
	roots, err := repository.Open([]string{t.TempDir()}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(roots.Close)
	k := New(roots, nil)
	for _, name := range names {
		k.modelLocked(repository.Identity{Name: name}).set(entry{number: 1, state: Unavailable, reason: unloaded})
	}
	return k
}

// TestForgetKeepsUsedModels checks which models are idle and forgotten.
func TestForgetKeepsUsedModels(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *model)
		want   bool // the model is idle and forgotten
	}{
		{"never loaded", func(m *model) { clear(m.versions) }, true},
		{"unloaded", func(*model) {}, true},
		{"without a version", func(m *model) { clear(m.versions); m.attempted = true }, false},
		{"wanted", func(m *model) { m.wanted = &Source{} }, false},
		{"served", func(m *model) { m.served = &Source{} }, false},
		{"invalid", func(m *model) { m.invalid = infer.Errorf(infer.Internal, "no") }, false},
		{"failed", func(m *model) { m.versions[1].reason = reason{"Internal: no", "Internal: no"} }, false},
		{"loading", func(m *model) { m.versions[1].state = Loading }, false},
		{"ending", func(m *model) { m.versions[1].state = Unloading }, false},
	} {
		k := unloadedModels(t, "m")
		id := repository.Identity{Name: "m"}
		m := k.models[id]
		c.change(m)
		if got := len(k.Idle()) == 1; got != c.want {
			t.Errorf("%s: it is idle: %v, want %v", c.name, got, c.want)
		}
		k.Forget([]repository.Identity{id, {Name: "unknown"}})
		if got := !k.Knows("m", infer.LatestVersion); got != c.want {
			t.Errorf("%s: it is forgotten: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestEndBehindForget checks that the end of a version does not bring back its forgotten model.
func TestEndBehindForget(t *testing.T) {
	k := unloadedModels(t)
	k.Ended(repository.Identity{Name: "m"}, 1, nil)
	if k.Knows("m", infer.LatestVersion) {
		t.Error("the catalog knows a model that has ended")
	}
}

// TestLowestVersionsAreForgotten checks that many versions that do not serve lose the lowest ones.
func TestLowestVersionsAreForgotten(t *testing.T) {
	for _, c := range []struct {
		versions    int64
		text        string
		most, least int // versions that are kept
	}{{900, "unloaded", 900, 900}, {20_000, "unloaded", 1000, 700}, {200, strings.Repeat("x", 3<<10), 90, 55}, {20, strings.Repeat("x", 3<<10), 20, 20}} {
		m := &model{versions: make(map[int64]*entry)}
		for n := range c.versions {
			m.set(entry{number: n + 10, state: Unavailable, reason: reason{c.text, c.text}})
		}
		for n, state := range []State{Ready, Loading, Unloading} {
			m.set(entry{number: int64(n), state: state})
		}
		m.trimLocked()
		kept := len(m.versions) - 3
		for n := range int64(kept) {
			if number := 10 + c.versions - 1 - n; m.versions[number] == nil {
				t.Fatalf("%d versions: version %d is forgotten, and lower ones are not", c.versions, number)
			}
		}
		if m.versions[0] == nil || m.versions[1] == nil || m.versions[2] == nil || kept > c.most || kept < c.least {
			t.Errorf("%d versions with %d bytes of text: %d are left, want %d to %d and those that serve, load or end", c.versions, len(c.text), kept, c.least, c.most)
		}
	}
}

// TestOldestModelsAreSurplus checks that the oldest models without a directory are surplus.
func TestOldestModelsAreSurplus(t *testing.T) {
	k := unloadedModels(t)
	const many = 8000
	id := func(n int) repository.Identity { return repository.Identity{Name: fmt.Sprintf("%04d", n)} }
	for n := range many {
		m := k.modelLocked(id(n))
		m.age, m.attempted = uint64(many-n), true
		m.set(entry{number: 1, state: Unavailable, reason: unloaded})
		if n == many-1 {
			m.served = &Source{}
		}
	}
	surplus := k.Surplus()
	for i, one := range surplus {
		if want := id(many - 2 - i); one != want {
			t.Fatalf("surplus %d is %s, want %s", i, one, want)
		}
	}
	if kept := many - len(surplus); kept < 1500 || kept > 4000 {
		t.Errorf("%d of %d models are surplus", len(surplus), many)
	}
	k.Discard(surplus, repository.SetOf(surplus[0]))
	if got := k.Surplus(); got != nil {
		t.Errorf("%d models are surplus after a discard", len(got))
	}
	if n := len(k.models); n != many-len(surplus)+1 || k.models[surplus[0]] == nil {
		t.Errorf("%d models are left, want %d, with that in a repository", n, many-len(surplus)+1)
	}
}

// TestUnchangedModelsKeepTheirSnapshot checks that a step of a model copies no others.
func TestUnchangedModelsKeepTheirSnapshot(t *testing.T) {
	k := unloadedModels(t, "a", "b")
	a, b := repository.Identity{Name: "a"}, repository.Identity{Name: "b"}
	k.publishLocked()
	before := k.serving.Load()
	k.models[a].set(entry{number: 2, state: Loading})
	k.publishLocked()
	after := k.serving.Load()
	if after.models[b] != before.models[b] || len(after.models[a].versions) != 2 || len(before.models[a].versions) != 1 {
		t.Errorf("got %v and %v after %v and %v", after.models[a], after.models[b], before.models[a], before.models[b])
	}
}

// TestChangedImportsReloadTheirVersion checks that changed imports outweigh new instances.
func TestChangedImportsReloadTheirVersion(t *testing.T) {
	source := func(instances int32) *Source {
		config := &kserve.ModelConfig{Name: "m", InstanceGroup: []*kserve.ModelInstanceGroup{{Count: instances}}}
		return &Source{Description: &repository.Description{Name: "m", Config: config, Versions: []int64{1, 2}}}
	}
	got := planChange(source(1), source(2), []int64{1, 2}, []int64{2})
	if !slices.Equal(got.exchange, []int64{1}) || !slices.Equal(got.load, []int64{2}) || got.keep != nil || got.leave != nil {
		t.Errorf("got %+v, want version 1 exchanged and version 2 loaded", got)
	}
}
