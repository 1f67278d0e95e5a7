// Package internal holds the rules between the packages of this repository, as tests.
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
	maxLines = 600 // of a file: a longer file contains a second idea
)

// everything is for packages that wire or test the others.
var everything = []string{"*"}

// mayImport is the import table: which packages each package may import. Tests may also import
// helpers for tests. The rows of folders apply to everything below them. A new top-level package
// needs a decision record in docs/decisions that says why no existing package fits.
var mayImport = map[string][]string{
	".":          everything,
	"cmd/nereid": {".", "cli", "objectstore/providers"},

	"cli":            everything,
	"cli/bench":      {"panics", "cli/client", "cli/command", "cli/tensors", "infer", "internal/spelling", "kserve", "server/recording"},
	"cli/check":      {".", "cli/command", "cli/tensors", "conda", "infer", "internal/spelling", "kserve", "models", "models/config", "models/diagnosis", "models/repository", "models/version", "objectstore", "server/rest/inference", "server/tracing"},
	"cli/tensors":    {"infer"},
	"cli/replay":     {"panics", "cli/client", "cli/command", "cli/tensors", "infer", "kserve", "server/recording"},
	"cli/client":     {"infer", "kserve", "server/connections"},
	"cli/command":    {"panics", "internal/spelling"},
	"cli/completion": {"cli/client", "cli/command", "kserve"},
	"cli/devserver":  {"panics", "cli/command", "cli/logs", "models/diagnosis"},
	"cli/entry":      {},
	"cli/functions":  {".", "panics", "backend/python", "cli/command", "pyutils", "stub"},
	"cli/flags":      {".", "backend/native", "backend/python", "cli/command", "cli/logs", "devices", "infer", "internal/bounds", "internal/spelling", "budget", "metrics", "models/cache", "models/repository", "server", "server/connections", "server/openai", "server/page/admission", "server/rest/origins", "server/tracing"},
	"cli/env":        {"cli/command", "conda", "conda/cache"},
	"cli/notify":     {"panics"},
	"cli/health":     {"cli/client", "cli/command", "infer", "kserve"},
	"cli/logs":       {"panics", "cli/command", "server", "server/jsontext"},
	"cli/manual":     {"cli/command"},
	"cli/backends":   {"backend", "backend/native", "backend/process", "cli/command", "metrics", "models/config", "models/version", "sdk/conformance", "shm"},
	"cli/skeleton":   {"cli/command", "infer"},
	"cli/top":        {"panics", "cli/client", "cli/command", "server/status"},

	"server":                 {"infer", "kserve", "budget", "metrics", "models", "server/clientshm", "server/tracing"},
	"server/certificates":    {},
	"server/platforms":       {"infer", "budget", "server", "server/http1", "server/jsontext", "server/rest", "server/rest/body", "server/rest/inference"},
	"server/connections":     {"budget", "internal/heap", "shm"},
	"server/http1":           {"panics", "budget", "internal/bounds", "server/connections"},
	"server/http1/http1test": {},
	"server/jsontext":        {"budget"},
	"server/openai":          {"infer", "infer/trace", "kserve", "budget", "models", "server", "server/http1", "server/jsontext", "server/openai/jinja", "server/rest", "server/rest/body", "server/rest/generate"},
	"server/openai/jinja":    {},
	"server/page":            {"infer", "kserve", "budget", "models", "server", "server/http1", "server/jsontext", "server/page/admission", "server/page/form", "server/rest", "server/rest/body", "server/rest/values", "server/status"},
	"server/page/admission":  {"server/http1"},
	"server/page/form":       {"infer", "kserve", "budget", "server/jsontext"},
	"server/recording":       {"panics", "infer", "budget", "models", "server", "internal/bounds"},
	"server/clientshm":       {"infer", "budget", "shm", "shm/foreign"},
	"server/tracing":         {"panics", "infer", "infer/trace", "budget", "server/jsontext"},
	"server/status":          {"panics", "metrics", "models"},
	"server/servertest":      {"server", "infer", "kserve", "budget", "models", "server/clientshm"},

	"server/grpc":         {"panics", "infer", "infer/trace", "internal/bounds", "kserve", "budget", "models", "server", "server/certificates", "server/connections", "server/grpc/message", "server/grpc/replies", "server/clientshm", "server/tracing"},
	"server/grpc/message": {"panics", "infer", "budget", "models", "server", "server/clientshm"},
	"server/grpc/replies": {"panics", "infer", "infer/trace", "budget", "models", "server/grpc/message"},

	"server/rest":           {"infer", "infer/trace", "internal/bounds", "kserve", "budget", "metrics", "models", "server", "server/certificates", "server/connections", "server/http1", "server/jsontext", "server/page/admission", "server/clientshm", "server/rest/body", "server/rest/generate", "server/rest/inference", "server/rest/openapi", "server/rest/origins", "server/rest/pages", "server/status", "server/tracing"},
	"server/rest/openapi":   {"infer", "kserve", "models"},
	"server/rest/origins":   {"server/http1"},
	"server/rest/pages":     {},
	"server/rest/generate":  {"panics", "infer", "kserve", "budget", "models", "server", "server/http1", "server/jsontext", "server/rest/body", "server/rest/values"},
	"server/rest/values":    {"infer", "budget", "server/jsontext"},
	"server/rest/body":      {"infer", "budget", "server", "server/http1", "server/jsontext"},
	"server/rest/inference": {"infer", "infer/trace", "kserve", "budget", "models", "server", "server/http1", "server/jsontext", "server/clientshm", "server/rest/body", "server/rest/values"},

	"models":                   {"backend", "panics", "infer", "kserve", "budget", "models/catalog", "models/config", "models/copies", "models/diagnosis", "models/repository", "models/version"},
	"models/cache":             {"infer", "metrics"},
	"models/catalog":           {"budget", "infer", "kserve", "models/config", "models/copies", "models/repository", "models/version"},
	"models/config":            {"budget", "infer", "internal/spelling", "kserve"},
	"models/copies":            {},
	"models/diagnosis":         {"infer", "kserve", "models/config"},
	"models/mirror":            {"panics", "infer", "metrics", "models/copies", "objectstore"},
	"models/mirror/mirrortest": {"objectstore"},
	"models/repository":        {"budget", "panics", "conda", "infer", "kserve", "models/config", "models/copies", "models/diagnosis", "models/mirror", "objectstore"},
	"models/signature":         {"infer", "kserve"},
	"models/statistics":        {"backend", "infer", "kserve", "metrics", "scheduler"},
	"models/version":           {"backend", "panics", "infer", "internal/spelling", "kserve", "budget", "metrics", "models/cache", "models/config", "models/copies", "models/diagnosis", "models/repository", "models/signature", "models/statistics", "models/warmup", "scheduler", "scheduler/batching", "scheduler/ensemble", "scheduler/ratelimit", "scheduler/sequence", "scheduler/stacked", "scheduler/waitgraph"},
	"models/warmup":            {"backend", "budget", "panics", "infer", "kserve", "models/repository", "models/signature", "scheduler"},

	"scheduler":           {"backend", "panics", "infer", "internal/heap", "scheduler/batching", "scheduler/handover", "scheduler/roster", "scheduler/waitgraph"},
	"scheduler/batching":  {"backend", "infer", "kserve"},
	"scheduler/ensemble":  {"budget", "backend", "panics", "infer", "scheduler", "internal/processors"},
	"scheduler/handover":  {"backend", "panics", "infer", "scheduler/waitgraph", "internal/processors"},
	"scheduler/ratelimit": {"backend", "panics", "infer", "internal/heap", "kserve", "scheduler/handover"},
	"scheduler/roster":    {"backend"},
	"scheduler/sequence":  {"backend", "panics", "infer", "internal/heap", "kserve", "budget", "scheduler", "scheduler/batching", "scheduler/handover", "scheduler/roster", "scheduler/waitgraph"},
	"scheduler/stacked":   {"backend", "panics", "infer", "kserve", "budget"},
	"scheduler/waitgraph": {"backend", "panics", "infer"},

	"backend":                     {"infer", "kserve"},
	"backend/backendtest":         {"backend", "infer"},
	"backend/native":              {"backend", "backend/process", "backend/process/launch", "backend/process/settings", "panics", "infer", "ipc", "kserve"},
	"backend/placement":           {"infer", "kserve"},
	"backend/process":             {"backend", "backend/placement", "backend/process/bls", "backend/process/frames", "backend/process/hostcalls", "backend/process/launch", "backend/process/mapping", "backend/process/cudaipc", "backend/process/output", "panics", "infer", "ipc", "kserve", "budget", "metrics", "shm", "internal/bounds"},
	"backend/process/bls":         {"backend", "backend/process/frames", "backend/process/cudaipc", "panics", "infer", "ipc", "budget", "shm"},
	"backend/process/frames":      {"backend/process/cudaipc", "backend/process/output", "infer", "ipc", "budget", "shm", "shm/foreign"},
	"backend/process/hostcalls":   {"backend", "backend/process/frames", "backend/process/output", "panics", "infer", "infer/trace", "ipc", "metrics", "internal/bounds"},
	"backend/process/launch":      {"panics", "budget"},
	"backend/process/mapping":     {"ipc", "shm"},
	"backend/process/cudaipc":     {"infer", "ipc", "shm", "shm/foreign"},
	"backend/process/output":      {"panics", "internal/bounds"},
	"backend/process/processtest": {"backend", "backend/process/frames", "infer", "ipc", "ipc/ipctest", "shm"},
	"backend/process/settings":    {"backend/process", "infer", "budget"},
	"backend/python":              {"backend", "backend/process", "backend/process/launch", "backend/process/output", "backend/process/settings", "panics", "conda", "conda/archive", "conda/build", "conda/cache", "infer", "kserve", "shm"},

	"conda":         {},
	"conda/archive": {"budget", "infer", "panics"},
	"conda/build":   {"conda", "conda/cache"},
	"conda/cache":   {"budget", "panics", "conda/archive"},

	"ipc":         {"panics", "shm", "shm/foreign", "internal/processors"},
	"ipc/ipctest": {"internal/testkit", "ipc"},
	"ipc/peer":    {"ipc", "shm"},
	"shm":         {"panics", "shm/foreign"},
	"shm/foreign": {},

	"sdk":                    {"backend", "infer", "kserve", "sdk/internal/execution"},
	"sdk/engine":             {"backend", "panics", "infer", "kserve", "sdk", "sdk/internal/execution"},
	"sdk/internal/execution": {"backend", "panics", "infer", "infer/trace"},
	"sdk/linked":             {"backend", "backend/placement", "panics", "infer", "kserve", "sdk", "sdk/engine"},
	"sdk/plugin":             {"backend", "panics", "infer", "ipc", "ipc/peer", "sdk", "sdk/engine"},
	"sdk/conformance":        {"backend", "panics", "infer", "kserve", "models/config", "sdk", "sdk/linked"},

	"stub":                        {},
	"pyutils":                     {},
	"infer":                       {"infer/trace"},
	"internal/heap":               {},
	"internal/processors":         {},
	"internal/bounds":             {},
	"internal/spelling":           {},
	"internal/testkit":            {"panics"},
	"infer/trace":                 {},
	"kserve":                      {},
	"devices":                     {"backend/process/launch", "backend/process/output", "panics", "infer", "shm", "shm/foreign"},
	"metrics":                     {"panics", "metrics/exposition"},
	"metrics/exposition":          {},
	"budget":                      {"infer", "internal/bounds"},
	"objectstore":                 {"infer"},
	"objectstore/providers":       {"objectstore"},
	"objectstore/objectstoretest": {"internal/testkit"},
	"panics":                      {},
	"examples/backends":           {"kserve", "sdk", "sdk/plugin"},
	"examples/backends/server":    everything,
	"bench":                       everything,
	"integration":                 everything,
	"internal":                    {},
}

// tested lists additional packages that the tests of a package may import.
var tested = map[string][]string{
	"backend/process/frames":    {"infer/trace"},
	"backend/process/hostcalls": {"budget"},
	"examples/backends":         {"backend", "infer", "sdk/conformance"}, // as in the tests of other authors
	"backend/native":            {"ipc", "shm"},
	"cli/flags":                 {"backend/process", "backend/process/hostcalls", "backend/process/output", "server/recording"},
	"cli/skeleton":              {"models/config"},
	"backend/process":           {"backend/python", "ipc/peer", "shm/foreign", "stub", "pyutils"}, // their stubs are hosted by it
	"backend/python":            {"ipc", "budget", "pyutils", "stub"},
	"models":                    {"metrics", "scheduler/ratelimit"},
	"models/signature":          {"models/config"},
	"models/version":            {"infer/trace"},
	"server/openai":             {"server/tracing"},
	"sdk/engine":                {"infer/trace", "metrics"},
	"sdk/linked":                {"metrics"},
	"sdk/plugin":                {"backend/native", "backend/process", "infer/trace", "kserve", "metrics", "shm"}, // they host its processes
	"server/rest/body":          {"panics"},
	"server/grpc/message":       {"kserve"},
	"scheduler":                 {"kserve", "scheduler/ratelimit"},
	"scheduler/sequence":        {"scheduler/ratelimit"},
	"scheduler/stacked":         {"scheduler", "scheduler/batching"},
}

// wired are the packages with numbers that cross the wire: these are written out, never counted by
// iota.
var wired = []string{"ipc", "shm", "infer"}

// noNames are meaningless names of packages.
var noNames = []string{"util", "utils", "common", "pkg", "types", "helpers"}

// goFile is a parsed file of the repository.
type goFile struct {
	path      string // from the root, with slashes
	pkg       string // its row of the import table, or ""
	test      bool
	generated bool
	lines     int
	syntax    *ast.File
}

func TestPackagesImportOnlyAllowedPackages(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.pkg == "" {
			t.Errorf("%s has no row in the import table", file.path)
			continue
		}
		for _, spec := range file.syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatalf("%s: import %s: %v", file.path, spec.Path.Value, err)
			}
			if why := refuseImport(file.pkg, file.test, imported); why != "" {
				t.Errorf("%s: package %q imports %s: %s", file.path, file.pkg, imported, why)
			}
		}
	}
}

// TestTheTableRefuses checks that the table rejects some imports and accepts others.
func TestTheTableRefuses(t *testing.T) {
	for _, test := range []struct {
		pkg      string
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
		{"kserve", true, module + "/cli", true},
		{"cli", false, module + "/server", false},
		{"cli", false, module, false},
		{"server", false, module, true},
		{"shm", false, "golang.org/x/sys/unix", false},
		{"shm", false, module + "-else/server", false},
	} {
		if why := refuseImport(test.pkg, test.test, test.imported); (why != "") != test.refused {
			t.Errorf("%s (test: %v) imports %s: got %q, want refused = %v", test.pkg, test.test, test.imported, why, test.refused)
		}
	}
}

// TestOnlyTheCommandLinksProviders checks that only the command links the SDKs of the object
// stores, which would make every other program and each test binary larger and slower to link.
func TestOnlyTheCommandLinksProviders(t *testing.T) {
	for _, file := range goFiles(t) {
		for _, spec := range file.syntax.Imports {
			if spec.Path.Value == strconv.Quote(module+"/objectstore/providers") && file.pkg != "cmd/nereid" && path.Dir(file.path) != "objectstore/providers" {
				t.Errorf("%s imports objectstore/providers: the server gets its Opener as an option", file.path)
			}
		}
	}
}

// refuseImport returns the reason why a file may not import a package, or "".
func refuseImport(pkg string, test bool, imported string) string {
	inside, ours := strings.CutPrefix(imported+"/", module+"/")
	if !ours {
		return ""
	}
	inside = path.Clean(inside)
	target := packageOf(inside)
	switch {
	case target == pkg, target != "" && slices.Equal(mayImport[pkg], everything):
		return ""
	case test && (helpsTests(inside) || slices.Contains(tested[pkg], target)):
		return ""
	case target == "":
		return "it has no row in the import table"
	case !slices.Contains(mayImport[pkg], target):
		return "the table allows it " + strings.Join(append([]string{"itself"}, mayImport[pkg]...), ", ")
	}
	return ""
}

// folders are the rows that apply to all packages below them.
var folders = []string{"examples/backends", "bench", "integration", "internal", "kserve"}

// TestTheTableIsThatOfThePackages checks that each package has a row, and that each name in the
// table is a package.
func TestTheTableIsThatOfThePackages(t *testing.T) {
	there := make(map[string]bool)
	for _, file := range goFiles(t) {
		dir := path.Dir(file.path)
		there[dir] = true
		if i := slices.IndexFunc(folders, func(f string) bool { return strings.HasPrefix(dir, f+"/") }); i >= 0 {
			there[folders[i]] = true
			continue
		}
		if _, ok := mayImport[dir]; !ok {
			t.Errorf("%s: package %s has no row in the import table", file.path, dir)
		}
	}
	for _, table := range []map[string][]string{mayImport, tested} {
		for pkg, imports := range table {
			for _, name := range append([]string{pkg}, imports...) {
				if name != "*" && !there[name] {
					t.Errorf("the row of %s names %s, which is no package", pkg, name)
				}
			}
		}
	}
}

// TestTheTableAllowsNothingUnused finds permissions in a row that no file of its package uses: they
// would allow an import without a decision.
func TestTheTableAllowsNothingUnused(t *testing.T) {
	type use struct {
		pkg, imported string
		test          bool
	}
	used := make(map[use]bool)
	for _, file := range goFiles(t) {
		for _, spec := range file.syntax.Imports {
			if inside, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`)+"/", module+"/"); ours {
				used[use{file.pkg, packageOf(path.Clean(inside)), file.test}] = true
			}
		}
	}
	for pkg, imports := range mayImport {
		for _, name := range imports {
			if name != "*" && !used[use{pkg, name, false}] {
				t.Errorf("the row of %s allows %s, which no file of it imports", pkg, name)
			}
		}
	}
	for pkg, imports := range tested {
		for _, name := range imports {
			if !used[use{pkg, name, true}] {
				t.Errorf("the tests of %s may import %s, and do not", pkg, name)
			}
		}
	}
}

// helpsTests reports whether a package only helps other packages' tests.
func helpsTests(name string) bool {
	return strings.HasPrefix(name, "internal/testkit") || strings.HasSuffix(name, "test")
}

func TestUnsafeLiesInShmAlone(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.generated || path.Dir(file.path) == "shm" && strings.HasSuffix(file.path, "_unsafe.go") {
			continue
		}
		for _, spec := range file.syntax.Imports {
			if spec.Path.Value == `"unsafe"` && file.path != "server/grpc/deadline.go" { // go:linkname needs the import
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

func TestPackageNamesAreSpecific(t *testing.T) {
	for _, file := range goFiles(t) {
		if slices.Contains(noNames, file.syntax.Name.Name) {
			t.Errorf("%s: package %s says nothing about what it holds", file.path, file.syntax.Name.Name)
		}
	}
}

func TestWireNumbersAreWrittenOut(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.test || !slices.Contains(wired, file.pkg) {
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

// TestPyutilsKnowsNoStub checks that pyutils does not import the stub: modules for model.py must be
// importable anywhere, and the stub passes them a runtime.
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

// packageOf returns the row of a path from the root: the longest key of the table that is a prefix,
// or "." for a file or package in the root itself.
func packageOf(name string) string {
	if name == "." || path.Dir(name) == "." && path.Ext(name) == ".go" {
		return "."
	}
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if _, ok := mayImport[dir]; ok {
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
			path: name, pkg: packageOf(name), syntax: syntax,
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

// walk calls visit for every Go, Python and Markdown file of the repository, except those in hidden
// directories, in testdata and in other modules.
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
		case entry.IsDir() && name != "." && isModule(filepath.Join(root, filepath.FromSlash(name))):
			return fs.SkipDir // it imports none of the product's packages
		case !entry.Type().IsRegular() || !slices.Contains([]string{".go", ".py", ".md"}, path.Ext(name)):
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

// isModule reports whether a directory is a Go module of its own.
func isModule(directory string) bool {
	_, err := os.Stat(filepath.Join(directory, "go.mod"))
	return err == nil
}
