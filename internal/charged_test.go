package internal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// uncharged are the packages and files that TestChargedAllocations does not read, and why. "/..."
// includes all packages below.
var uncharged = []struct{ path, reason string }{
	{"backend/backendtest", "helpers of tests"},
	{"backend/process/processtest", "helpers of tests"},
	{"internal/progress", "the repository"},
	{"internal/testkit/...", "helpers of tests"},
	{"ipc/ipctest", "helpers of tests"},
	{"models/mirror/mirrortest", "helpers of tests"},
	{"objectstore/objectstoretest", "helpers of tests"},
	{"server/servertest", "helpers of tests"},
	{"bench/...", "measurements"},
	{"examples/...", "code to copy, which runs in processes of backends"},
	{"ipc/peer", "runs in processes of backends"},
	{"sdk/...", "runs in processes of backends, or between a server and a backend that its author links"},
	{"kserve/...", "generated, and its generator"},
	{"cli", "the command line"},
	{"cli/backends", "the command line, and the operator's plugins"},
	{"cli/check", "the operator's models"},
	{"cli/client", "the command line, and replies of the operator's server, which MaxReply limits"},
	{"cli/command", "the command line"},
	{"cli/completion", "the command line"},
	{"cli/devserver", "the developer's models"},
	{"cli/entry", "the environment of the container"},
	{"cli/env", "the operator's environments"},
	{"cli/flags", "the command line"},
	{"cli/functions", "the developer's file and its output"},
	{"cli/health", "replies of the operator's server, which client.MaxReply limits"},
	{"cli/logs", "one line of the log at a time, and maxUnread bytes of earlier ones"},
	{"cli/manual", "the command line"},
	{"cli/notify", "the environment of the service"},
	{"cli/skeleton", "the command line"},
	{"cli/tensors", "the command line"},
	{"cli/top", "replies of the operator's server, which client.MaxReply limits"},
	{"cli/bench/options.go", "the command line"},
	{"cli/replay/flight.go", "the operator's records"},
	{"backends.go", "the command line"},
	{"linked.go", "backends that are linked into the server"},
	{"budget/limit_linux.go", "the kernel's tables of mounts and control groups"},
	{"backend/python/unpack.go", "the stub's files, which are embedded"},
	{"models/start.go", "the operator's repositories"},
	{"models/poll.go", "the operator's repositories"},
	{"models/examine.go", "the operator's repositories"},
	{"models/diagnosis/line.go", "the operator's repositories"},
	{"objectstore/credentials.go", "the operator's credentials"},
	{"server/rest/openapi", "configs of models, charged by server/rest"},
	{"server/rest/origins", "the command line"},
	{"server/rest/pages", "configs of models, charged by server/rest"},
	{"server/openai/jinja/lexer.go", "the operator's templates"},
	{"server/openai/jinja/parser.go", "the operator's templates"},
	{"server/openai/jinja/expressions.go", "the operator's templates"},
}

// exceptionOf returns the row of the table that has a package or its file, or "".
func exceptionOf(pkg, file string) string {
	for _, row := range uncharged {
		below, all := strings.CutSuffix(row.path, "/...")
		if row.path == pkg || row.path == file || all && (pkg == below || strings.HasPrefix(pkg, below+"/")) {
			return row.path
		}
	}
	return ""
}

// TestChargedAllocations finds uncharged allocations whose size clients or models choose: make,
// append, maps, copies of strings, and functions of the standard library that return as much as
// they are given. It reads all packages except those of the table. It ignores
//
//   - budget.Make, budget.Append and budget.Text, which charge;
//   - constant sizes, min with a constant, and fixed numbers of elements outside of loops;
//   - loops with a constant number of rounds, over arrays, literals and package variables;
//   - appends to a slice with room from make with a capacity, from budget.Grow, or from a
//     function whose declaration names a bound;
//   - conversions that the compiler does without a copy;
//   - lines with a comment "// bound: why", at their end or above them, and all uses of
//     variables, fields and functions whose declaration has such a comment;
//   - formatting by package fmt and concatenations outside of loops: several hundred make errors,
//     names and paths of texts that have a bound. infer.Errorf cuts its arguments.
func TestChargedAllocations(t *testing.T) {
	used := map[string]bool{} // rows of the table
	for _, p := range chargedPackages(t, "./...") {
		for _, f := range p.findings() {
			file, _, _ := strings.Cut(f.at, ":")
			row := exceptionOf(p.path, file)
			if used[row] = true; row == "" {
				t.Errorf("%s: %s. Use budget.Make, budget.Append or budget.Text, or say // bound: why", f.at, f.what)
			}
		}
	}
	for _, row := range uncharged {
		if !used[row.path] {
			t.Errorf("%s needs no exception: nothing is found there", row.path)
		}
	}
}

// TestChargedFinds compares the findings in testdata with the comments "// want: what".
func TestChargedFinds(t *testing.T) {
	p := chargedPackages(t, "./internal/testdata/charged")[0]
	got := map[string]string{}
	for _, f := range p.findings() {
		got[f.at] += f.what
	}
	wants := 0
	for _, file := range p.files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				want, ok := strings.CutPrefix(c.Text, "// want: ")
				if !ok {
					continue
				}
				wants++
				at := p.where(c.Pos())
				if !strings.Contains(got[at], want) {
					t.Errorf("%s: got %q, want %q", at, got[at], want)
				}
				delete(got, at)
			}
		}
	}
	for at, what := range got {
		t.Errorf("%s: got %q, want nothing", at, what)
	}
	if wants < 20 {
		t.Errorf("got %d examples, want at least 20", wants)
	}
}

// finding is a line that allocates by the size of its input.
type finding struct{ at, what string }

// chargedPackage is a package with its types.
type chargedPackage struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
	types *types.Package
	// bounded are the lines of comments that name a bound, and the lines below them.
	bounded map[string]bool
	list    []finding
	// definitions are the only assignments to variables, or nil for variables with several.
	definitions map[types.Object]ast.Expr
	grown       map[types.Object]bool // variables that grow after their definition
	roomy       map[types.Object]bool // variables for which a bounded function has reserved capacity
}

// chargedPackages parses packages and checks their types, with the export data of their imports.
func chargedPackages(t *testing.T, pattern string) (list []*chargedPackage) {
	t.Helper()
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,DepOnly", pattern)
	command.Dir = ".."
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		DepOnly                 bool
	}
	exports := map[string]string{}
	var wanted []listed
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		var one listed
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[one.ImportPath] = one.Export
		if !one.DepOnly {
			wanted = append(wanted, one)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, one := range wanted {
		p := &chargedPackage{path: strings.TrimPrefix(strings.TrimPrefix(one.ImportPath, module), "/"), fset: fset, bounded: map[string]bool{}, definitions: map[types.Object]ast.Expr{}, grown: map[types.Object]bool{}, roomy: map[types.Object]bool{}}
		p.info = &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		}
		for _, name := range one.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(one.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, file)
		}
		if p.types, err = (&types.Config{Importer: imports}).Check(one.ImportPath, fset, p.files, p.info); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// where returns the file and the line of a position.
func (p *chargedPackage) where(at token.Pos) string {
	position := p.fset.Position(at)
	return fmt.Sprintf("%s:%d", filepath.Join(p.path, filepath.Base(position.Filename)), position.Line)
}

var namesBound = regexp.MustCompile(`(?m)^\s*(?:// ?)?bound: \S`)

func (p *chargedPackage) findings() []finding {
	code := map[string]bool{} // lines with code
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case nil, *ast.Comment, *ast.CommentGroup:
				return false
			}
			code[p.where(n.Pos())] = true
			return true
		})
	}
	for _, file := range p.files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				if !strings.Contains(c.Text, "bound: ") {
					continue
				}
				p.bounded[p.where(c.Pos())] = true
				if !code[p.where(c.Pos())] { // otherwise it belongs to its own line
					p.bounded[p.where(group.End()+1)] = true
				}
			}
		}
	}
	for _, file := range p.files {
		p.define(file)
	}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || function.Body == nil || function.Doc != nil && namesBound.MatchString(function.Doc.Text()) {
				continue
			}
			(&chargedWalk{p: p, grown: map[types.Object]bool{}}).walk(function.Body)
		}
	}
	slices.SortFunc(p.list, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	return slices.CompactFunc(p.list, func(a, b finding) bool { return a.at == b.at })
}

// define records the definitions of variables.
func (p *chargedPackage) define(file *ast.File) {
	note := func(left, right ast.Expr) {
		if index, ok := left.(*ast.IndexExpr); ok {
			p.grown[p.root(index.X)] = true
		}
		ident, ok := left.(*ast.Ident)
		if !ok {
			return
		}
		object := p.info.ObjectOf(ident)
		if object == nil {
			return
		}
		if call, ok := right.(*ast.CallExpr); ok {
			pkg, name := p.callee(call)
			p.roomy[object] = p.roomy[object] || pkg == budgetPackage && name == "Grow" || p.isBoundedFunction(call)
		}
		if _, again := p.definitions[object]; again {
			// b = append(b, …) keeps the definition of b.
			if call, ok := right.(*ast.CallExpr); ok && len(call.Args) > 0 && p.isAppend(call) && p.root(call.Args[0]) == object {
				p.grown[object] = true
				return
			}
			right = nil
		}
		p.definitions[object] = right
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				switch {
				case n.Tok != token.ASSIGN && n.Tok != token.DEFINE:
					note(left, nil)
				case len(n.Lhs) == len(n.Rhs):
					note(left, n.Rhs[i])
				case i == 0:
					note(left, n.Rhs[0]) // a value and an error
				default:
					note(left, nil)
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					note(name, n.Values[i])
				}
			}
		case *ast.IncDecStmt:
			note(n.X, nil)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(n.X, nil)
			}
		case *ast.RangeStmt:
			if n.Key != nil {
				note(n.Key, nil)
			}
			if n.Value != nil {
				note(n.Value, nil)
			}
		}
		return true
	})
}

// root returns the variable or field that an expression is, or is a part of, or nil.
func (p *chargedPackage) root(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return p.info.ObjectOf(e)
	case *ast.SelectorExpr:
		return p.info.ObjectOf(e.Sel)
	case *ast.SliceExpr:
		return p.root(e.X)
	case *ast.StarExpr:
		return p.root(e.X)
	case *ast.IndexExpr:
		return p.root(e.X)
	case *ast.CallExpr: // append(append(b, …), …)
		if len(e.Args) > 0 && p.isAppend(e) {
			return p.root(e.Args[0])
		}
	}
	return nil
}

// isLocal reports whether an expression is a local variable, or made from one by append.
func (p *chargedPackage) isLocal(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		object := p.info.ObjectOf(e)
		if object == nil {
			return true
		}
		v, ok := object.(*types.Var)
		return !ok || !v.IsField() && v.Parent() != p.types.Scope()
	case *ast.SliceExpr:
		return p.isLocal(e.X)
	case *ast.CallExpr:
		return len(e.Args) == 0 || !p.isAppend(e) || p.isLocal(e.Args[0])
	case *ast.CompositeLit:
		return true
	}
	return false
}

// isBounded reports whether the declaration of a variable, field or function of this package names
// a bound.
func (p *chargedPackage) isBounded(object types.Object) bool {
	return object != nil && object.Pos().IsValid() && object.Pkg() == p.types && p.bounded[p.where(object.Pos())]
}

// callee returns the package and the name of the called function. The package is "" for built-in
// functions, and the name of a method includes its type.
func (p *chargedPackage) callee(call *ast.CallExpr) (pkg, name string) {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = index.X
	}
	var ident *ast.Ident
	switch f := fun.(type) {
	case *ast.Ident:
		ident = f
	case *ast.SelectorExpr:
		ident = f.Sel
	default:
		return "?", ""
	}
	switch object := p.info.ObjectOf(ident).(type) {
	case *types.Builtin:
		return "", object.Name()
	case *types.Func:
		if object.Pkg() == nil {
			return "?", ""
		}
		name := object.Name()
		if receiver := object.Signature().Recv(); receiver != nil {
			t := receiver.Type()
			if pointer, ok := t.(*types.Pointer); ok {
				t = pointer.Elem()
			}
			if named, ok := t.(*types.Named); ok {
				name = named.Obj().Name() + "." + name
			}
		}
		return object.Pkg().Path(), name
	}
	return "?", ""
}

const budgetPackage = module + "/budget"

// isAppend reports whether a call returns its first argument with more appended: append, and
// functions whose names begin with it.
func (p *chargedPackage) isAppend(call *ast.CallExpr) bool {
	pkg, name := p.callee(call)
	if pkg == budgetPackage || len(call.Args) == 0 {
		return false
	}
	if pkg == "" {
		return name == "append"
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[i+1:]
	}
	if !strings.HasPrefix(strings.ToLower(name), "append") {
		return false
	}
	first, _ := p.info.TypeOf(call.Args[0]).(*types.Slice)
	result, _ := p.info.TypeOf(call).(*types.Slice)
	return first != nil && result != nil && types.Identical(first, result)
}
