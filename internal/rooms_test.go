// Package internal holds the table of the rooms of this repository, as a test.
package internal

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "github.com/nereid-serving/nereid"
	maxLines = 600 // of a file: above, there is a second idea in it
)

// everything is what a room may import that wires or tests the others.
var everything = []string{"*"}

// rooms says which other rooms each room may import. A room's own packages, and
// internal/testkit in tests, go without saying. A new room here needs a decision
// record in docs/decisions that says why no room has it.
var rooms = map[string][]string{
	"cmd/nereid":     everything,
	".":              everything, // the wiring
	"server":         {"models", "infer", "kserve", "memory", "boundary"},
	"models":         {"scheduler", "backend", "infer", "kserve", "metrics", "boundary", "memory"},
	"scheduler":      {"backend", "infer", "kserve", "metrics", "boundary", "memory"},
	"backend":        {"infer", "kserve"},
	"backend/python": {"backend/process", "backend/process/launch", "backend/process/output", "backend", "ipc", "shm", "conda", "stub", "pyutils", "infer", "kserve", "metrics", "boundary", "memory"},
	"backend/native": {"backend", "infer", "kserve"},
	"ipc":            {"shm", "boundary"},
	"shm":            {"boundary"},
	"stub":           {},
	"pyutils":        {},
	"infer":          {},
	"kserve":         {},
	"conda":          {},
	"metrics":        {"boundary"},
	"boundary":       {},
	"memory":         {"infer"},
	"bench":          everything,
	"integration":    everything,
	"internal":       {},

	"backend/process":        {"backend/process/launch", "backend/process/output", "backend", "ipc", "shm", "infer", "kserve", "metrics", "boundary", "memory"},
	"backend/process/launch": {"boundary"},
	"backend/process/output": {"boundary"},

	"server/connections": {"memory", "boundary"},
	"server/http1":       {"server/connections", "memory", "boundary"},
	"server/jsontext":    {},
	"server/rest":        {"server", "server/connections", "server/http1", "server/jsontext", "models", "infer", "kserve", "memory", "boundary"},
	"server/grpc":        {"server", "server/connections", "models", "infer", "kserve", "memory", "boundary"},
}

// tested says which rooms the tests of a room may import besides.
var tested = map[string][]string{
	"backend/process": {"backend/python", "stub", "pyutils"}, // whose stubs they host
}

// wired are the rooms in which numbers that cross the wire stand: there they
// are written out, never counted by iota.
var wired = []string{"ipc", "shm", "infer"}

// noNames are names of packages that say nothing.
var noNames = []string{"util", "utils", "common", "pkg", "types", "helpers"}

// goFile is what the tests below look at.
type goFile struct {
	path      string // from the root, with slashes
	room      string // "" if it lies in none
	test      bool
	generated bool
	lines     int
	syntax    *ast.File
}

func TestRoomsImportOnlyTheirNeighbours(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.room == "" {
			t.Errorf("%s lies in no room: the rooms are the keys of the table in this test", file.path)
			continue
		}
		for _, spec := range file.syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatalf("%s: import %s: %v", file.path, spec.Path.Value, err)
			}
			if why := refuseImport(file.room, file.test, imported); why != "" {
				t.Errorf("%s: room %q imports %s: %s", file.path, file.room, imported, why)
			}
		}
	}
}

// TestTheTableRefuses is for the day on which the table lets everything through.
func TestTheTableRefuses(t *testing.T) {
	for _, test := range []struct {
		room     string
		test     bool
		imported string
		refused  bool
	}{
		{"ipc", false, module + "/shm", false},
		{"ipc", false, module + "/infer", true},
		{"shm", false, module + "/ipc", true},
		{"backend", false, module + "/backend/python", true},
		{"backend/process", false, module + "/backend/python", true},
		{"backend/process", false, module + "/stub", true},
		{"backend/process", true, module + "/backend/python", false},
		{"backend/python", false, module + "/backend", false},
		{"scheduler", false, module + "/backend/python", true},
		{"server", false, module + "/scheduler", true},
		{"server", false, module + "/server/internal/json", false},
		{"server", true, module + "/internal/testkit", false},
		{"server", false, module + "/internal/testkit", true},
		{"kserve", true, module + "/cmd/nereid", true},
		{"cmd/nereid", false, module + "/server", false},
		{"cmd/nereid", false, module, false},
		{"server", false, module, true},
		{"shm", false, "golang.org/x/sys/unix", false},
		{"shm", false, module + "-else/server", false},
	} {
		if why := refuseImport(test.room, test.test, test.imported); (why != "") != test.refused {
			t.Errorf("%s (test: %v) imports %s: got %q, want refused = %v", test.room, test.test, test.imported, why, test.refused)
		}
	}
}

// refuseImport says why a file may not import a package, or nothing.
func refuseImport(room string, test bool, imported string) string {
	inside, ours := strings.CutPrefix(imported+"/", module+"/")
	if !ours {
		return ""
	}
	inside = path.Clean(inside)
	target := roomOf(inside)
	switch {
	case target == room, target != "" && slices.Equal(rooms[room], everything):
		return ""
	case test && (strings.HasPrefix(inside, "internal/testkit") || slices.Contains(tested[room], target)):
		return ""
	case target == "":
		return "it lies in no room"
	case !slices.Contains(rooms[room], target):
		return "the table allows it " + strings.Join(append([]string{"itself"}, rooms[room]...), ", ")
	}
	return ""
}

func TestUnsafeLiesInShmAlone(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.generated || path.Dir(file.path) == "shm" && strings.HasSuffix(file.path, "_unsafe.go") {
			continue
		}
		for _, spec := range file.syntax.Imports {
			if spec.Path.Value == `"unsafe"` {
				t.Errorf("%s imports unsafe, which belongs in shm/*_unsafe.go", file.path)
			}
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, file := range goFiles(t) {
		if !file.generated && file.lines > maxLines {
			t.Errorf("%s: got %d lines, want at most %d: which is its second idea?", file.path, file.lines, maxLines)
		}
	}
}

func TestPackagesAreNamedByWhatTheyHold(t *testing.T) {
	for _, file := range goFiles(t) {
		if slices.Contains(noNames, file.syntax.Name.Name) {
			t.Errorf("%s: package %s says nothing about what it holds", file.path, file.syntax.Name.Name)
		}
	}
}

func TestWireNumbersAreWrittenOut(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.test || !slices.Contains(wired, file.room) {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if name, ok := node.(*ast.Ident); ok && name.Name == "iota" {
				t.Errorf("%s uses iota, but numbers on the wire are written out", file.path)
			}
			return true
		})
	}
}

// pythonImport finds the module of an import statement, at any depth.
var pythonImport = regexp.MustCompile(`(?m)^[ \t]*(?:import|from)[ \t]+([\w.]+)`)

// TestPyutilsKnowsNoStub: what model.py imports must work wherever it is
// imported; the stub hands it a runtime.
func TestPyutilsKnowsNoStub(t *testing.T) {
	walk(t, func(name string, content []byte) {
		if !strings.HasPrefix(name, "pyutils/") || path.Ext(name) != ".py" {
			return
		}
		for _, match := range pythonImport.FindAllSubmatch(content, -1) {
			if first, _, _ := bytes.Cut(match[1], []byte(".")); string(first) == "pb_stub" {
				t.Errorf("%s imports %s: pyutils imports nothing of the stub", name, match[1])
			}
		}
	})
}

// roomOf returns the room of a path from the root: the longest key of the table
// that it begins with, and "." of a file or the package in the root itself.
func roomOf(name string) string {
	if name == "." || path.Dir(name) == "." && path.Ext(name) == ".go" {
		return "."
	}
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if _, ok := rooms[dir]; ok {
			return dir
		}
	}
	return ""
}

// goFiles parses every Go file of the repository, whatever its build tags.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	fset := token.NewFileSet()
	walk(t, func(name string, content []byte) {
		if path.Ext(name) != ".go" {
			return
		}
		syntax, err := parser.ParseFile(fset, name, content, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, goFile{
			path: name, room: roomOf(name), syntax: syntax,
			test:      strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax),
			lines:     bytes.Count(content, []byte("\n")),
		})
	})
	if len(files) == 0 {
		t.Fatal("there is no Go file: the walk looks in the wrong place")
	}
	return files
}

// walk calls visit with every file of the repository, less those in hidden
// directories and in testdata.
func walk(t *testing.T, visit func(name string, content []byte)) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin"):
			return fs.SkipDir
		case !entry.Type().IsRegular() || path.Ext(name) != ".go" && path.Ext(name) != ".py":
			return nil
		}
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		visit(name, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
