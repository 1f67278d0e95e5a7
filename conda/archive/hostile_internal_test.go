package archive

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestFoldedNamesAreRefused checks that two names that differ only in case are refused on a file
// system that folds case.
func TestFoldedNamesAreRefused(t *testing.T) {
	p := NewDestination(t)
	if err := p.Unpack(t, Pack(t, Regular("E", "x")), Options{}); err != nil {
		t.Fatal(err)
	}
	tree, err := newTree(p.Root, func() error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.exact("E"); err != nil {
		t.Errorf("the same spelling: got error %v, want none", err)
	}
	WantError(t, named("e", tree.exact("e")),
		`entry "e": the archive also has "E", and this file system ignores case; unpack into a case-sensitive one`)
}

// TestKeptNamesDoNotKeepTheirHeaders makes directories and links whose names are parts of large
// headers, as those of pax entries are, and checks that the headers are freed.
func TestKeptNamesDoNotKeepTheirHeaders(t *testing.T) {
	p := NewDestination(t)
	tree, err := newTree(p.Root, func() error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	const entries, header = 50, 1 << 20
	before := testkit.LiveHeap()
	for i := range entries {
		name := (strconv.Itoa(i) + strings.Repeat(" ", header))[:len(strconv.Itoa(i))]
		if err := tree.setDirectory(name, 0o755, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		link := ("link" + name + strings.Repeat(" ", header))[:4+len(name)]
		if err := tree.symlink(link, name+"/../"+name, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if after := testkit.LiveHeap(); after > before+entries*header/4 {
		t.Errorf("got %d bytes kept for %d short names", after-before, 2*entries)
	}
	if len(tree.directories) != entries+1 || len(tree.upward) != entries {
		t.Errorf("got %d directories and %d links, want %d of each", len(tree.directories)-1, len(tree.upward), entries)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := tree.checkUpward(ctx); !errors.Is(err, stopped) {
		t.Errorf("check of links after the end: got error %v, want the cause", err)
	}
}
