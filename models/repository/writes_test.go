package repository

import (
	"slices"
	"testing"
)

// sources is a footprint with files in the model's directory and, by absolute paths, outside of it.
func sources(inside map[string]uint64, outside map[string]uint64) Footprint {
	return Footprint{files: inside, Outside: outside}
}

// TestWritesOfLoadsAreToldFromThoseOfPeople: what each of three loads changes is the load's, as long as each load does, and
// nothing that changes beside it is.
func TestWritesOfLoadsAreToldFromThoseOfPeople(t *testing.T) {
	var w Writes
	n := uint64(0)
	load := func(rewritten []string, also ...string) (own []string, first bool) {
		t.Helper()
		w.Begin(sources(map[string]uint64{"1/model.py": 1, "1/made.py": n}, map[string]uint64{"/made.py": n}))
		if !w.UnderWay() {
			t.Fatal("a load that has begun is not under way")
		}
		n++
		files := map[string]uint64{"1/model.py": 1, "1/made.py": n}
		for _, name := range also {
			files[name] = n
		}
		own, first = w.End(sources(files, map[string]uint64{"/made.py": n}), rewritten)
		if w.UnderWay() {
			t.Fatal("a load that has ended is under way")
		}
		return own, first
	}
	want := []string{"/made.py", "1/made.py"}
	for i := range habitual + 2 {
		own, first := load([]string{"/made.py"})
		if known := i >= habitual-1; known != slices.Equal(own, want) || first != (i == habitual-1) || !known && own != nil {
			t.Errorf("load %d: got %q, first %t", i+1, own, first)
		}
	}
	if own, _ := load(nil, "1/new.py"); own != nil {
		t.Errorf("a new file beside: got %q, want nothing", own)
	}
	if own, first := load(nil); !slices.Equal(own, want) || first {
		t.Errorf("after it: got %q, first %t, want what is known", own, first)
	}
	w.Begin(sources(nil, nil))
	if own, _ := w.End(sources(nil, nil), nil); own != nil {
		t.Errorf("a load that has changed nothing: got %q", own)
	}
	if own, _ := load(nil); own != nil {
		t.Errorf("a load after one that has changed nothing: got %q, want that it begins anew", own)
	}
}

// TestLoadsThatChangeTheirSourcesAreLetEnd: a load is overtaken for what a person saves, and not for ever for what loads write.
func TestLoadsThatChangeTheirSourcesAreLetEnd(t *testing.T) {
	var w Writes
	state := func(n uint64) Footprint { return sources(map[string]uint64{"made.py": n}, nil) }
	for n := range uint64(maxOvertaken) {
		w.Begin(state(n))
		if !w.MayOvertake(state(n + 1)) {
			t.Fatalf("load %d may not be overtaken", n+1)
		}
	}
	w.Begin(state(10))
	if w.MayOvertake(state(11)) {
		t.Error("a load may be overtaken once more for a file that each load changes")
	}
	if !w.MayOvertake(sources(map[string]uint64{"made.py": 11, "model.py": 1}, nil)) {
		t.Error("a load may not be overtaken for another file")
	}
	w.Begin(state(12))
	if own, _ := w.End(state(13), nil); own != nil {
		t.Errorf("the first load that has ended: got %q, want nothing", own)
	}
	w.Begin(state(13))
	if w.MayOvertake(state(14)) {
		t.Error("the load after one that has changed the file may be overtaken")
	}
	w.End(state(13), nil)
	w.Begin(state(13))
	if !w.MayOvertake(state(14)) {
		t.Error("the load after one that has ended without a change may not be overtaken")
	}
}
