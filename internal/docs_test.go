package internal

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Names of tests in docs/compatibility.md: `package.TestName` or `package.FuzzName` of
// Go, `folder/tests/test_file.py` or `folder/tests/test_file.py::name` of Python.
var (
	goTest     = regexp.MustCompile("`([a-z]+(?:/[a-z]+)*)\\.((?:Test|Fuzz)\\w+)`")
	pythonTest = regexp.MustCompile("`([\\w/]+/test_\\w+\\.py)(?:::(\\w+))?`")
)

// TestCompatibilityNamesTests finds tests that docs/compatibility.md names and
// that are not there.
func TestCompatibilityNamesTests(t *testing.T) {
	text, err := os.ReadFile("../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{} // the text of all Go tests, by package
	found := 0
	for _, name := range goTest.FindAllStringSubmatch(string(text), -1) {
		found++
		pkg, test := name[1], name[2]
		if _, ok := texts[pkg]; !ok {
			texts[pkg] = testsOf(t, pkg)
		}
		if !strings.Contains(texts[pkg], "\nfunc "+test+"(") {
			t.Errorf("%s has no %s", pkg, test)
		}
	}
	for _, name := range pythonTest.FindAllStringSubmatch(string(text), -1) {
		found++
		file, err := os.ReadFile(filepath.Join("..", name[1]))
		switch {
		case err != nil:
			t.Error(err)
		case name[2] != "" && !regexp.MustCompile(`\b(def|class) `+name[2]+`\b`).Match(file):
			t.Errorf("%s has no %s", name[1], name[2])
		}
	}
	if found == 0 {
		t.Error("docs/compatibility.md names no test")
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
