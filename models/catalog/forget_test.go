package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/models/repository"
)

// TestLowestVersionsAreForgotten checks that ordinary numbers of versions that do not serve are
// kept, and that beyond them the lowest are forgotten, but none that serves, loads or ends.
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

// TestOldestModelsAreSurplus checks which of many models are surplus: the oldest that are left of
// requests and have no directory.
func TestOldestModelsAreSurplus(t *testing.T) {
	k := graphOf(t, false)
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

// TestUnchangedModelsKeepTheirSnapshot checks that a step of one model does not copy the versions
// of the others.
func TestUnchangedModelsKeepTheirSnapshot(t *testing.T) {
	k := graphOf(t, false, "a UNAVAILABLE", "b UNAVAILABLE")
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
