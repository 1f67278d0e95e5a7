package repository

import (
	"slices"
	"testing"
)

// sources returns a footprint with files inside the model's directory and files outside, which have
// absolute paths.
func sources(inside map[string]uint64, outside map[string]uint64) Footprint {
	return Footprint{files: inside, Outside: outside}
}

// TestChangesByLoadsAreDistinguishedFromEdits checks that a change that several loads in a row make
// is attributed to the loads, until a load makes a different change or none.
func TestChangesByLoadsAreDistinguishedFromEdits(t *testing.T) {
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

// may reports whether a load may be overtaken.
func may(w *Writes, now Footprint) bool {
	yes, _, _ := w.MayOvertake(now)
	return yes
}

// TestLoadsThatChangeTheirSourcesAreLetEnd checks that a save by a person overtakes a load, while a
// file that every load writes overtakes only a limited number of loads.
func TestLoadsThatChangeTheirSourcesAreLetEnd(t *testing.T) {
	var w Writes
	state := func(n uint64) Footprint { return sources(map[string]uint64{"made.py": n}, nil) }
	for n := range uint64(maxOvertaken) {
		w.Begin(state(n))
		if !may(&w, state(n+1)) {
			t.Fatalf("load %d may not be overtaken", n+1)
		}
	}
	w.Begin(state(10))
	if may(&w, state(11)) {
		t.Error("a load may be overtaken once more for a file that each load changes")
	}
	if !may(&w, sources(map[string]uint64{"made.py": 11, "model.py": 1}, nil)) {
		t.Error("a load may not be overtaken for another file")
	}
	w.Begin(state(12))
	if own, _ := w.End(state(13), nil); own != nil {
		t.Errorf("the first load that has ended: got %q, want nothing", own)
	}
	w.Begin(state(13))
	if may(&w, state(14)) {
		t.Error("the load after one that has changed the file may be overtaken")
	}
	w.End(state(13), nil)
	w.Begin(state(13))
	if !may(&w, state(14)) {
		t.Error("the load after one that has ended without a change may not be overtaken")
	}
}

// TestLoadsThatHangAreOvertaken saves one file during each of many loads that hang. It checks that
// each load takes the expected number of saves to be overtaken, and that each save that does not
// suffice is reported with the number still needed.
func TestLoadsThatHangAreOvertaken(t *testing.T) {
	var w Writes
	n := uint64(0)
	state := func() Footprint { return sources(map[string]uint64{"model.py": n, "other.py": 1}, nil) }
	for load, wanted := range []int{1, 1, 2, 2, 3, 3, 4} {
		w.Begin(state())
		for more := wanted - 1; more > 0; more-- {
			n++
			if yes, path, further := w.MayOvertake(state()); yes || path != "model.py" || further != more {
				t.Fatalf("load %d: got %t, %q, %d, want that %d saves more of model.py are asked for", load, yes, path, further, more)
			}
			for range 2 {
				if yes, path, _ := w.MayOvertake(state()); yes || path != "" {
					t.Fatalf("load %d, looked at again: got %t, %q, want no word", load, yes, path)
				}
			}
		}
		n++
		if yes, path, further := w.MayOvertake(state()); !yes || path != "" || further != 0 {
			t.Fatalf("load %d, save %d: got %t, %q, %d, want that it is overtaken", load, wanted, yes, path, further)
		}
	}
	w.Begin(state())
	n++
	if may(&w, state()) {
		t.Fatal("a load is overtaken by one save")
	}
	if !may(&w, sources(map[string]uint64{"model.py": n, "other.py": 2}, nil)) {
		t.Error("a load is not overtaken for another file")
	}
}

// TestLoadsThatWriteTwiceAreLetEnd checks that a load that always writes a file twice long before
// its end is not overtaken forever, and that the file is attributed to it eventually.
func TestLoadsThatWriteTwiceAreLetEnd(t *testing.T) {
	var w Writes
	n := uint64(0)
	state := func() Footprint { return sources(map[string]uint64{"made.py": n}, nil) }
	overtaken, told := 0, 0
	for load := range 100 {
		w.Begin(state())
		ends := true
		for range 2 {
			n++
			if ends {
				ends = !may(&w, state())
			}
		}
		if !ends {
			overtaken++
			continue
		}
		own, first := w.End(state(), nil)
		if first {
			told++
		}
		if known := load >= 2*maxOvertaken+2*habitual; known != (own != nil) {
			t.Errorf("load %d: got %q, want it told %t", load+1, own, known)
		}
	}
	if overtaken != 2*maxOvertaken || told != 1 {
		t.Errorf("%d loads were overtaken, want %d, and it was told %d times, want once", overtaken, 2*maxOvertaken, told)
	}
	w.Begin(state())
	n++
	if yes, path, _ := w.MayOvertake(state()); yes || path != "" {
		t.Errorf("a write that is known: got %t, %q, want no word", yes, path)
	}
}

// TestSavesDuringSlowLoadsAreNotTheirs checks that a file with more intermediate contents than in
// earlier loads is not attributed to the load, whether or not the file was known already, and that
// writes of slow loads take longer to be known.
func TestSavesDuringSlowLoadsAreNotTheirs(t *testing.T) {
	var w Writes
	n := uint64(0)
	load := func(saves int, late bool) []string {
		t.Helper()
		state := func() Footprint { return sources(map[string]uint64{"model.py": n}, nil) }
		w.Begin(state())
		for range saves {
			n++
			w.MayOvertake(state()) // the load may be overtaken, but it has just ended
		}
		if late {
			n++
		}
		own, _ := w.End(state(), nil)
		return own
	}
	for i := range 4 * habitual {
		if own := load(i+1, false); own != nil {
			t.Fatalf("load %d, with more saves than before: got %q, want a person's", i+1, own)
		}
	}
	load(0, false)
	for i := range 2*habitual + 1 {
		if own, want := load(1, false), i >= 2*habitual-1; want != (own != nil) {
			t.Errorf("slow load %d: got %q, want it known %t", i+1, own, want)
		}
	}
	if own := load(1, true); own != nil {
		t.Errorf("a save beside what the load writes: got %q, want a person's", own)
	}
	if own := load(1, false); own == nil {
		t.Error("what loads write is forgotten after a person's save")
	}
}
