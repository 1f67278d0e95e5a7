package internal

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// namedPath matches a path from the root, in backquotes or in a command.
	namedPath = regexp.MustCompile(`[ \x60]\.?/?((?:[\w-]+/)+[\w.-]*[\w/-]|[A-Za-z][\w-]*\.go|Makefile)`)
	// linkedPath matches the target of a link, without its heading.
	linkedPath = regexp.MustCompile(`\]\(([^)#:]+)[^)]*\)`)
	// makeTargets matches the targets of make commands.
	makeTargets = regexp.MustCompile("make ((?:[a-z-]+ )*[a-z-]+)(?:`|  |\n)")
	// runTest is a test that a command runs.
	runTest = regexp.MustCompile(`go test \./(\S+) -run '(Test\w+)\$'`)
	// qualified is a name with its package, such as infer.Request.
	qualified = regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)[^`]*`")
	// quotedName matches a Go name and the file that should declare it.
	quotedName = regexp.MustCompile("`([A-Za-z]+)` (?:of|in|in the) `([\\w/.-]+)`")
)

// guides are the pages whose paths and names must exist.
var guides = []string{"CONTRIBUTING.md", "docs/glossary.md"}

// TestGuidesNameExistingThings finds paths, make targets, tests and names in CONTRIBUTING.md and
// docs/glossary.md that do not exist.
func TestGuidesNameExistingThings(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, guide := range guides {
		text := read(t, guide)
		paths := namedPath.FindAllStringSubmatch(text, -1)
		for _, name := range paths {
			if !made(name[1]) && !exists(name[1]) {
				t.Errorf("%s names %s, which is not there", guide, name[1])
			}
		}
		for _, link := range linkedPath.FindAllStringSubmatch(text, -1) {
			if target := path.Join(path.Dir(guide), link[1]); !exists(target) {
				t.Errorf("%s links to %s, which is not there", guide, target)
			}
		}
		for _, list := range makeTargets.FindAllStringSubmatch(text, -1) {
			for target := range strings.FieldsSeq(list[1]) {
				if guide == "CONTRIBUTING.md" && !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s has make do %q, which the Makefile does not know", guide, target)
				}
			}
		}
		for _, test := range runTest.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(testsOf(t, test[1]), "\nfunc "+test[2]+"(") {
				t.Errorf("%s runs %s, which %s does not have", guide, test[2], test[1])
			}
		}
		for _, name := range quotedName.FindAllStringSubmatch(text, -1) {
			if exists(name[2]) && path.Ext(name[2]) != "" && !strings.Contains(read(t, name[2]), name[1]) {
				t.Errorf("%s says that %s is in %s", guide, name[1], name[2])
			}
		}
		names := qualified.FindAllStringSubmatch(text, -1)
		for _, name := range names {
			if directory := directoryOf(name[1]); exists(directory) && !declares(t, directory, name[2]) {
				t.Errorf("%s names %s.%s, which %s does not declare", guide, name[1], name[2], directory)
			}
		}
		if len(paths)+len(names) < 5 {
			t.Errorf("%s: found %d paths and %d names, want more: does the search still work?", guide, len(paths), len(names))
		}
	}
}

// directoryOf returns the directory of a package that a page names without its path.
func directoryOf(name string) string {
	switch name {
	case "nereid":
		return "."
	case "testkit":
		return "internal/testkit"
	}
	return name
}

// declares reports whether a package declares a type, a function or a variable.
func declares(t *testing.T, directory, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(directory), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`(?m)^(?:type|func|var|const) ` + name + `\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declaration.Match(text) {
			return true
		}
	}
	return false
}

// made reports whether a path is created by commands.
func made(name string) bool {
	return strings.HasPrefix(name, "bin/") || strings.HasPrefix(name, "venv") || strings.HasSuffix(name, "/bin/python")
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join("..", filepath.FromSlash(name)))
	return err == nil
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
