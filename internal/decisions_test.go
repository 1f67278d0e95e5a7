package internal

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quotedPath is a path below a top-level folder, in backquotes.
var quotedPath = regexp.MustCompile("`((?:\\w+)(?:/[\\w-]+(?:\\.\\w+)?)+)`")

// TestDecisionsNameExistingThings finds files, packages and identifiers in decisions that no longer
// exist.
func TestDecisionsNameExistingThings(t *testing.T) {
	decisions, err := filepath.Glob("../docs/decisions/*.md")
	if err != nil || len(decisions) == 0 {
		t.Fatalf("got %d decisions and error %v", len(decisions), err)
	}
	found := 0
	for _, decision := range decisions {
		name := filepath.ToSlash(decision[len("../"):])
		text := read(t, name)
		for _, quoted := range quotedPath.FindAllStringSubmatch(text, -1) {
			top, _, _ := strings.Cut(quoted[1], "/")
			if !exists(top) {
				continue // a path of another program
			}
			found++
			if !exists(quoted[1]) && !namesIdentifier(t, quoted[1]) {
				t.Errorf("%s names %s, which does not exist", name, quoted[1])
			}
		}
		for _, quoted := range qualified.FindAllStringSubmatch(text, -1) {
			if directory := directoryOf(quoted[1]); exists(directory) {
				found++
				if !declares(t, directory, quoted[2]) {
					t.Errorf("%s names %s.%s, which %s does not declare", name, quoted[1], quoted[2], directory)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d names, want more: does the search still work?", found)
	}
}

// namesIdentifier reports whether a path consists of a package and an identifier in it, such as
// models/version.Version.
func namesIdentifier(t *testing.T, name string) bool {
	t.Helper()
	directory, identifier, ok := strings.Cut(name, ".")
	return ok && exists(directory) && declares(t, directory, identifier)
}
