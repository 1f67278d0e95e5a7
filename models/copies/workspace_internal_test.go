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

// TestDirectoriesOfDeadServers checks that the next server removes the directory of a killed server
// and nothing else.
func TestDirectoriesOfDeadServers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, killed := NewWorkspace("", zerolog.Nop()), NewWorkspace("", zerolog.Nop())
	for _, s := range []*Workspace{living, killed} {
		if _, err := s.Make(""); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Flock(int(killed.parent.Fd()), unix.LOCK_UN); err != nil { // as the kernel does when a process ends
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
