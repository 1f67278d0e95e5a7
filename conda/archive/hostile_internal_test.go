package archive

import "testing"

// TestFoldedNamesAreRefused checks that two names that differ only in case are refused on a file
// system that folds case.
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
