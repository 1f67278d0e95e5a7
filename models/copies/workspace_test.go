package copies_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/models/copies"
)

func TestLastUserRemovesACopy(t *testing.T) {
	p := copies.NewWorkspace(t.TempDir(), zerolog.Nop())
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
	if err := os.Chmod(inner, 0); err != nil { // models may do this
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
	var none *copies.Copy
	none.Hold().Drop()
}

func TestDirectoryIsCreatedAgain(t *testing.T) {
	base := t.TempDir()
	p := copies.NewWorkspace(base, zerolog.Nop())
	for range 2 {
		c, err := p.Make("")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Dir(c.Path()))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("the place: got %v, %v, want mode 700", info, err)
		}
		if err := os.RemoveAll(filepath.Dir(c.Path())); err != nil { // as a cleaner of temporary files may do
			t.Fatal(err)
		}
		c.Drop()
	}
	p.Close()
	if _, err := p.Make(""); err != copies.ErrClosed {
		t.Errorf("a copy after the end: got error %v, want %v", err, copies.ErrClosed)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the base, want nothing", left, err)
	}
}
