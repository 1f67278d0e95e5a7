package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tree lists a directory recursively: directories with a trailing slash, files with their content.
func Tree(t *testing.T, directory string) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(directory, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, _ := filepath.Rel(directory, path)
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.IsDir() {
			list = append(list, fmt.Sprintf("%s/ %o", name, info.Mode().Perm()))
			return nil
		}
		content, err := os.ReadFile(path)
		list = append(list, fmt.Sprintf("%s %o %q", name, info.Mode().Perm(), content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "; ")
}

// WriteFiles writes files below root by name and returns root. A name that ends in a slash is a
// directory.
func WriteFiles(t testing.TB, root string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		directory := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			directory = path
		}
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		if directory == path {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

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

// Descriptors returns the number of descriptors that this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
