package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// unbounded are the files whose goroutines and callbacks need no boundary where they are started,
// with the reason.
var unbounded = map[string]string{
	"panics/panics.go":                  "is the boundary",
	"budget/keeper.go":                  "the finalizer only sends to a channel that never blocks",
	"sdk/internal/execution/dropped.go": "the cleanup has its boundary inside: around it, it would hold what is to be found",
	"server/grpc/message/buffered.go":   "the cleanup has its boundary inside: around it, it would hold what is to be found",
}

// unserved are the packages that are not part of the server. Authors of backends know only package
// sdk.
var unserved = []string{"examples/backends", "bench", "integration", "internal", "internal/testkit"}

// TestGoroutinesHaveBoundaries finds code that starts a goroutine without package panics. Such code
// must use panics.Go, panics.AfterFunc, or panics.Guard around functions for a sync.WaitGroup or a
// context.
func TestGoroutinesHaveBoundaries(t *testing.T) {
	seen := make(map[string]bool)
	for _, file := range goFiles(t) {
		if file.test || file.generated || slices.Contains(unserved, file.pkg) || strings.HasSuffix(path.Dir(file.path), "test") {
			continue // the last condition is for helpers shared by tests of several packages, like net/http/httptest
		}
		for _, what := range goroutines(file.syntax) {
			if seen[file.path] = true; unbounded[file.path] == "" {
				t.Errorf("%s: %s starts a goroutine without a boundary", file.path, what)
			}
		}
	}
	for path := range unbounded {
		if !seen[path] {
			t.Errorf("%s starts nothing without a boundary: it needs no exception", path)
		}
	}
}

// TestGoroutinesAreFound checks that the search finds goroutines without a boundary.
func TestGoroutinesAreFound(t *testing.T) {
	for _, test := range []struct {
		code  string
		found bool
	}{
		{"go f()", true},
		{"go func() {}()", true},
		{"time.AfterFunc(d, f)", true},
		{"t := time.AfterFunc(d, panics.Guard(log, where, f, nil))", true}, // panics.AfterFunc is shorter
		{"context.AfterFunc(ctx, f)", true},
		{"stop := context.AfterFunc(ctx, func() {})", true},
		{"context.AfterFunc(ctx, panics.Guard(log, where, f, nil))", false},
		{"group.Go(f)", true},
		{"a.b.group.Go(func() {})", true},
		{"group.Go(panics.Guard(log, where, f, nil))", false},
		{"r.ending.Go(log, where, f, nil)", false}, // a panics.WaitGroup
		{"panics.Go(log, where, f, nil)", false},
		{"panics.AfterFunc(log, where, d, f, nil)", false},
		{"runtime.SetFinalizer(x, f)", true},
		{"runtime.AddCleanup(x, f, y)", true},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc _() {\n"+test.code+"\n}", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if found := len(goroutines(file)) > 0; found != test.found {
			t.Errorf("%s: got found = %v, want %v", test.code, found, test.found)
		}
	}
}

// goroutines lists code that starts a goroutine without a boundary.
func goroutines(file *ast.File) (found []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			found = append(found, "go")
		case *ast.CallExpr:
			if name := calledName(n); startsGoroutine(name, n.Args) {
				found = append(found, name)
			}
		}
		return true
	})
	return found
}

func startsGoroutine(name string, args []ast.Expr) bool {
	switch {
	case strings.HasPrefix(name, "panics."):
		return false
	case name == "time.AfterFunc", name == "runtime.AddCleanup", name == "runtime.SetFinalizer":
		return true
	case name == "context.AfterFunc", strings.HasSuffix(name, ".Go") && len(args) == 1:
		call, ok := args[len(args)-1].(*ast.CallExpr)
		return !ok || calledName(call) != "panics.Guard"
	}
	return false
}

// calledName returns the name of a called function with its package, or of a method after a dot.
func calledName(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if owner, ok := selector.X.(*ast.Ident); ok {
		return owner.Name + "." + selector.Sel.Name
	}
	return "." + selector.Sel.Name
}
