package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestImportsChangeWithTheirFiles checks that imports have changed after a file is saved or
// removed, or appears where it was missing. Files that were not examined count as unchanged.
func TestImportsChangeWithTheirFiles(t *testing.T) {
	root, code := t.TempDir(), t.TempDir()
	testkit.WriteFiles(t, root, map[string]string{"m/1/model.py": ""})
	roots, err := Open([]string{root}, Options{SourcesAlone: true})
	if err != nil {
		t.Fatal(err)
	}
	defer roots.Close()
	at := func(name string) string { return filepath.Join(code, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("helper.py", "1")
	write("removed.py", "1")
	imports := NewImports()
	report := []string{at("helper.py"), at("removed.py"), at("missing.py"), code + "//helper.py"}
	if refused := imports.Add(report); refused != 0 {
		t.Errorf("%d of the files were refused, want none", refused)
	}
	if got := slices.Sorted(slices.Values(imports.Paths())); !slices.Equal(got, []string{at("helper.py"), at("missing.py"), at("removed.py")}) {
		t.Errorf("got paths %q", got)
	}
	check := func(want bool, what string) {
		t.Helper()
		looked, err := roots.Footprint(Identity{Name: "m"}, imports.Paths()...)
		if err != nil {
			t.Fatal(err)
		}
		_, read, err := roots.Read(Identity{Name: "m"}, nil, imports.Paths()...)
		if err != nil {
			t.Fatal(err)
		}
		for how, later := range map[string]Footprint{"Footprint": looked, "Read": read} {
			if got := imports.Same(later); got != want {
				t.Errorf("%s: by %s got %t, want %t", what, how, got, want)
			}
		}
	}
	check(true, "nothing has changed")
	if !imports.Same(Footprint{}) {
		t.Error("files that were not looked at have changed")
	}
	write("helper.py", "2")
	check(false, "a file was saved")
	imports.Add([]string{at("helper.py")}) // a second process imported the new file; the first still uses the old one
	check(false, "the file was reported again")
	for name, change := range map[string]func(){
		"a missing file has come": func() { write("missing.py", "1") },
		"a file was removed":      func() { _ = os.Remove(at("removed.py")) },
	} {
		imports = NewImports()
		imports.Add(report)
		check(true, "before: "+name)
		change()
		check(false, name)
	}
}

// TestModulesThatAreWrittenAnewAsTheyWereHaveNotChanged checks that a rewritten file with the same
// content is unchanged, except if it is too large to be read each time. It also checks that Add
// does not block on a pipe.
func TestModulesThatAreWrittenAnewAsTheyWereHaveNotChanged(t *testing.T) {
	at := filepath.Join(t.TempDir(), "helper.py")
	small, large := "x = 1", strings.Repeat("#", maxContent+1)
	for _, c := range []struct {
		name, before, after string
		same                bool
	}{
		{"as it was", small, small, true},
		{"of the same size", small, "x = 2", false},
		{"large", large, large, false},
		{"grown large", small, large, false},
	} {
		imports := NewImports()
		for i, text := range []string{c.before, c.after} {
			if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(at, time.Time{}, time.Unix(int64(1e9+i), 0)); err != nil {
				t.Fatal(err)
			}
			imports.Add([]string{at}) // only the first call records the file
		}
		if got := imports.Same(Footprint{Outside: outside(at)}); got != c.same {
			t.Errorf("%s: got %t, want %t", c.name, got, c.same)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe.py")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	NewImports().Add([]string{pipe})
}

// TestImportsAreBounded checks the limits on imports that a process reports, because the report is
// not trusted.
func TestImportsAreBounded(t *testing.T) {
	var none *Imports
	if none.Add([]string{"/a.py"}) != 0 || none.Paths() != nil || !none.Same(Footprint{}) {
		t.Error("the nil imports have files")
	}
	imports := NewImports()
	if refused := imports.Add([]string{"relative.py", "", "/a\x00.py", "/" + strings.Repeat("a", maxImportPath)}); refused != 4 || len(imports.Paths()) != 0 {
		t.Errorf("%d paths were refused and %d taken, want 4 and 0", refused, len(imports.Paths()))
	}
	var many []string
	for i := range maxImports + 10 {
		many = append(many, fmt.Sprintf("/nowhere/%d.py", i))
	}
	if refused := imports.Add(many); refused != 10 || len(imports.Paths()) != maxImports {
		t.Errorf("%d paths were refused and %d taken, want 10 and %d", refused, len(imports.Paths()), maxImports)
	}
	if refused := imports.Add(many[:1]); refused != 0 {
		t.Error("a path that is known was refused")
	}
}
