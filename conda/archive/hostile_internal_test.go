package archive

import "testing"

// TestFoldedNamesAreRefused: where a file system folds case, a name that is there under
// another spelling is found.
func TestFoldedNamesAreRefused(t *testing.T) {
	p := NewDestination(t)
	if _, err := p.Unpack(t, Pack(t, Regular("E", "x")), Options{}); err != nil {
		t.Fatal(err)
	}
	tree, err := newTree(p.Root, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.exact("E"); err != nil {
		t.Errorf("the same spelling: got error %v, want none", err)
	}
	WantError(t, named("e", tree.exact("e")),
		`entry "e": the archive also has "E", and this file system does not tell case apart; unpack into one that does`)
}
