package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Root returns the directory of this repository, in which the tests run.
func Root(t testing.TB) string {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// repositoryRoot returns the directory of go.mod, above the working directory, which for go test is
// the package's.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository's root: no go.mod above %s", start)
		}
	}
}
