package copies

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// TestDirectoriesOfDeadServers must be removed by the next server, those of others not.
func TestDirectoriesOfDeadServers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, killed := NewWorkspace("", zerolog.Nop()), NewWorkspace("", zerolog.Nop())
	for _, s := range []*Workspace{living, killed} {
		if _, err := s.Make(""); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Flock(int(killed.parent.Fd()), unix.LOCK_UN); err != nil { // as the kernel does
		t.Fatal(err)
	}
	for _, name := range []string{"other", namePrefix + "file"} {
		if err := os.WriteFile(filepath.Join(os.TempDir(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(os.TempDir(), "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("directory", filepath.Join(os.TempDir(), namePrefix+"link")); err != nil {
		t.Fatal(err)
	}
	next := NewWorkspace("", zerolog.Nop())
	next.Sweep()
	if _, err := next.Make(""); err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	defer living.Close()
	got := make(map[string]bool)
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got[e.Name()] = true
	}
	want := map[string]bool{"other": true, "directory": true, namePrefix + "file": true, namePrefix + "link": true,
		filepath.Base(living.parent.Name()): true, filepath.Base(next.parent.Name()): true}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func TestLastUserRemovesACopy(t *testing.T) {
	p := NewWorkspace(t.TempDir(), zerolog.Nop())
	defer p.Close()
	c, err := p.Make("folder")
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(c.Path(), "1")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "m"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(inner, 0); err != nil { // by the model
		t.Fatal(err)
	}
	if !c.TryHold() || c.Hold() != c || !c.Used() {
		t.Fatal("a copy in use cannot be held")
	}
	for range 2 {
		c.Drop()
		if _, err := os.Stat(c.Path()); err != nil {
			t.Fatalf("a copy with a user left: got %v, want it there", err)
		}
	}
	c.Drop()
	if _, err := os.Stat(c.Path()); !os.IsNotExist(err) {
		t.Errorf("a copy without users: got %v, want it gone", err)
	}
	if c.TryHold() || c.Used() {
		t.Error("a copy that is gone can be held")
	}
	var none *Copy
	none.Hold().Drop()
}

func TestDirectoryIsCreatedAgain(t *testing.T) {
	base := t.TempDir()
	p := NewWorkspace(base, zerolog.Nop())
	for range 2 {
		c, err := p.Make("")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Dir(c.Path()))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("the place: got %v, %v, want mode 700", info, err)
		}
		if err := os.RemoveAll(filepath.Dir(c.Path())); err != nil { // by a cleaner
			t.Fatal(err)
		}
		c.Drop()
	}
	p.Close()
	if _, err := p.Make(""); err != ErrClosed {
		t.Errorf("a copy after the end: got error %v, want %v", err, ErrClosed)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the base, want nothing", left, err)
	}
}
