package internal

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// listing are the pages that name tests.
var listing = []string{"docs/compatibility.md", "docs/tests.md"}

// Names of tests on these pages: `package.TestName` or `package.FuzzName` in Go,
// `folder/tests/test_file.py` or `folder/tests/test_file.py::name` in Python.
var (
	goTest     = regexp.MustCompile("`([a-z]+(?:/[a-z]+)*)\\.((?:Test|Fuzz)\\w+)`")
	pythonTest = regexp.MustCompile("`([\\w/]+/test_\\w+\\.py)(?:::(\\w+))?`")
)

// TestCompatibilityNamesTests finds tests on the pages that do not exist.
func TestCompatibilityNamesTests(t *testing.T) {
	texts := map[string]string{} // all Go tests as text, by package
	for _, page := range listing {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, name := range goTest.FindAllStringSubmatch(string(text), -1) {
			found++
			pkg, test := name[1], name[2]
			if _, ok := texts[pkg]; !ok {
				texts[pkg] = testsOf(t, pkg)
			}
			if !strings.Contains(texts[pkg], "\nfunc "+test+"(") {
				t.Errorf("%s: %s has no %s", page, pkg, test)
			}
		}
		for _, name := range pythonTest.FindAllStringSubmatch(string(text), -1) {
			found++
			file, err := os.ReadFile(filepath.Join("..", name[1]))
			switch {
			case err != nil:
				t.Error(err)
			case name[2] != "" && !regexp.MustCompile(`\b(def|class) `+name[2]+`\b`).Match(file):
				t.Errorf("%s: %s has no %s", page, name[1], name[2])
			}
		}
		if found == 0 {
			t.Errorf("%s names no test", page)
		}
	}
}

// testsOf returns the text of the Go tests of a package.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
