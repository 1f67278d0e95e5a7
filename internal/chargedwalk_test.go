package internal

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// copies are functions that return about as much as they are given, or more.
var copies = map[string]string{
	"strings":                          "Repeat Join Split SplitN SplitAfter SplitAfterN Fields FieldsFunc Replace ReplaceAll Map ToUpper ToLower ToTitle Title ToValidUTF8 Clone Replacer.Replace",
	"bytes":                            "Repeat Join Split SplitN SplitAfter SplitAfterN Fields FieldsFunc Replace ReplaceAll Map ToUpper ToLower ToTitle Title ToValidUTF8 Clone Runes NewBufferString Buffer.String Buffer.ReadFrom",
	"slices":                           "Clone Concat Collect Sorted SortedFunc Repeat Insert Grow AppendSeq",
	"maps":                             "Clone Collect Copy",
	"io":                               "ReadAll",
	"os":                               "ReadFile",
	"bufio":                            "NewReaderSize NewWriterSize Reader.ReadBytes Reader.ReadString",
	"encoding/json":                    "Unmarshal Marshal MarshalIndent Decoder.Decode Encoder.Encode Indent Compact",
	"encoding/base64":                  "Encoding.DecodeString Encoding.EncodeToString",
	"encoding/hex":                     "DecodeString EncodeToString",
	"net/url":                          "PathUnescape QueryUnescape PathEscape QueryEscape ParseQuery Values.Encode",
	"path":                             "Join Clean",
	"html":                             "EscapeString UnescapeString",
	"html/template":                    "Template.Execute Template.ExecuteTemplate HTMLEscapeString",
	"text/template":                    "Template.Execute Template.ExecuteTemplate",
	"regexp":                           "Regexp.ReplaceAll Regexp.ReplaceAllString Regexp.ReplaceAllLiteral Regexp.ReplaceAllLiteralString Regexp.ReplaceAllFunc Regexp.ReplaceAllStringFunc Regexp.Split Regexp.FindAll Regexp.FindAllString Regexp.FindAllIndex Regexp.FindAllStringIndex Regexp.FindAllSubmatch Regexp.FindAllStringSubmatch QuoteMeta",
	"strconv":                          "Quote Unquote QuoteToASCII",
	"google.golang.org/protobuf/proto": "Unmarshal Marshal Clone MarshalOptions.Marshal MarshalOptions.MarshalAppend UnmarshalOptions.Unmarshal",
	"google.golang.org/protobuf/encoding/protojson": "Unmarshal Marshal MarshalOptions.Marshal MarshalOptions.MarshalAppend UnmarshalOptions.Unmarshal",
	"google.golang.org/protobuf/encoding/prototext": "Unmarshal Marshal MarshalOptions.Marshal MarshalOptions.MarshalAppend UnmarshalOptions.Unmarshal",
	"github.com/vmihailenco/msgpack/v5":             "Unmarshal Marshal",
	module + "/server/jsontext":                     "String.String",
}

// readsReceiver matches the methods among copies that copy from their receiver.
var readsReceiver = regexp.MustCompile(`^(Buffer|Decoder|Reader|Values)\.`)

// chargedWalk walks the body of a function.
type chargedWalk struct {
	p     *chargedPackage
	loops int
	depth int // of definitions that are being followed
	stack []ast.Node
	grown map[types.Object]bool // variables with a finding
}

// enter limits how far definitions are followed, which may be circular.
func (w *chargedWalk) enter() bool {
	if w.depth >= 8 {
		return false
	}
	w.depth++
	return true
}

func (w *chargedWalk) leave() { w.depth-- }

func (w *chargedWalk) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil {
			last := w.stack[len(w.stack)-1]
			w.stack = w.stack[:len(w.stack)-1]
			if w.isLoop(last) {
				w.loops--
			}
			return true
		}
		w.stack = append(w.stack, n)
		if w.isLoop(n) {
			w.loops++
		}
		w.look(n)
		return true
	})
}

// isLoop reports whether the input determines how often a node is repeated.
func (w *chargedWalk) isLoop(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ForStmt:
		return true
	case *ast.RangeStmt:
		x := ast.Unparen(n.X)
		if _, ok := x.(*ast.CompositeLit); ok || w.isConstant(x) {
			return false
		}
		t := w.p.info.TypeOf(x).Underlying()
		if pointer, ok := t.(*types.Pointer); ok {
			t = pointer.Elem().Underlying()
		}
		if _, ok := t.(*types.Array); ok {
			return false
		}
		if basic, ok := t.(*types.Basic); ok && basic.Info()&types.IsInteger != 0 {
			return !w.isFixed(x)
		}
		v, ok := w.p.root(x).(*types.Var)
		return !ok || v.Pkg() == nil || v.IsField() || v.Parent() != v.Pkg().Scope()
	}
	return false
}

func (w *chargedWalk) isConstant(e ast.Expr) bool { return w.p.info.Types[e].Value != nil }

// isFixed reports whether a number has a bound that does not come from the input.
func (w *chargedWalk) isFixed(e ast.Expr) bool {
	e = ast.Unparen(e)
	if w.isConstant(e) {
		return true
	}
	if small, ok := w.p.info.TypeOf(e).Underlying().(*types.Basic); ok && (small.Kind() == types.Uint8 || small.Kind() == types.Int8) {
		return true
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		switch e.Op {
		case token.ADD, token.SUB, token.MUL, token.SHL:
			return w.isFixed(e.X) && w.isFixed(e.Y)
		case token.QUO, token.SHR:
			return w.isFixed(e.X)
		case token.REM, token.AND:
			return w.isFixed(e.X) || w.isFixed(e.Y)
		}
	case *ast.CallExpr:
		switch pkg, name := w.p.callee(e); {
		case pkg == "" && name == "min":
			return slices.ContainsFunc(e.Args, w.isFixed)
		case pkg == "" && name == "max":
			return !slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return !w.isFixed(a) })
		case pkg == "" && (name == "len" || name == "cap"):
			_, literal := ast.Unparen(e.Args[0]).(*ast.CompositeLit)
			v, ok := w.p.root(e.Args[0]).(*types.Var)
			return literal || ok && v.Pkg() != nil && !v.IsField() && v.Parent() == v.Pkg().Scope()
		case w.p.info.Types[e.Fun].IsType() && len(e.Args) == 1:
			return w.isFixed(e.Args[0])
		}
	case *ast.Ident, *ast.SelectorExpr:
		object := w.p.root(e)
		if w.p.isBounded(object) {
			return true
		}
		if definition := w.p.definitions[object]; definition != nil && w.enter() {
			defer w.leave()
			return w.isFixed(definition)
		}
	}
	return false
}

// isShort reports whether a string or a list has a bound that does not come from the input.
func (w *chargedWalk) isShort(e ast.Expr) bool {
	e = ast.Unparen(e)
	if w.isConstant(e) || w.p.isBounded(w.p.root(e)) {
		return true
	}
	switch e := e.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.SliceExpr:
		if t := w.p.info.TypeOf(e.X); t != nil {
			u := t.Underlying()
			if pointer, ok := u.(*types.Pointer); ok {
				u = pointer.Elem().Underlying()
			}
			if _, ok := u.(*types.Array); ok {
				return true
			}
		}
		return e.High != nil && w.isFixed(e.High) && !e.Slice3
	case *ast.CallExpr:
		pkg, name := w.p.callee(e)
		if pkg == budgetPackage || pkg == module+"/infer" && name == "Cut" || pkg == "strconv" && !strings.Contains(name, "uote") || strings.HasSuffix(name, ".String") && pkg != "bytes" && pkg != "strings" {
			return true // numbers, names of values, and truncated strings
		}
		if w.p.info.Types[e.Fun].IsType() && len(e.Args) == 1 {
			return w.isShort(e.Args[0])
		}
		if w.p.isAppend(e) { // its other arguments are checked at the call
			return w.isShort(e.Args[0])
		}
	case *ast.Ident:
		object := w.p.root(e)
		if v, ok := object.(*types.Var); ok && v.Pkg() != nil && !v.IsField() && v.Parent() == v.Pkg().Scope() {
			return true
		}
		if definition := w.p.definitions[object]; definition != nil && !w.p.grown[object] && w.enter() {
			defer w.leave()
			return w.isShort(definition)
		}
	case *ast.SelectorExpr:
		v, ok := w.p.root(e).(*types.Var)
		return ok && v.Pkg() != nil && !v.IsField() && v.Parent() == v.Pkg().Scope()
	}
	return false
}

// grows records that a variable or field grows, once per function, because a comment at its
// declaration covers all places.
func (w *chargedWalk) grows(object types.Object, n ast.Node, format string, arguments ...any) {
	if object != nil && w.grown[object] {
		return
	}
	before := len(w.p.list)
	if w.find(n, format, arguments...); len(w.p.list) > before {
		w.grown[object] = true
	}
}

func (w *chargedWalk) find(n ast.Node, format string, arguments ...any) {
	at := w.p.where(n.Pos())
	if !w.p.bounded[at] && !w.p.bounded[w.p.where(n.End())] {
		w.p.list = append(w.p.list, finding{at, fmt.Sprintf(format, arguments...)})
	}
}

func (w *chargedWalk) look(n ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if w.p.info.Types[n.Fun].IsType() {
			w.convert(n)
			return
		}
		w.call(n)
	case *ast.AssignStmt:
		w.assign(n)
	case *ast.IncDecStmt:
		w.key(n.X, n)
	}
}

func (w *chargedWalk) call(n *ast.CallExpr) {
	pkg, name := w.p.callee(n)
	switch {
	case pkg == "" && name == "make":
		for _, size := range n.Args[1:] {
			if !w.isFixed(size) {
				w.find(n, "make takes its size from %s", types.ExprString(size))
				return
			}
		}
	case w.p.isAppend(n):
		w.append(n)
	case strings.HasPrefix(name, "Split") && strings.HasSuffix(name, "N") && w.isConstant(n.Args[2]):
	case slices.Contains(strings.Fields(copies[pkg]), name):
		if from, ok := n.Fun.(*ast.SelectorExpr); ok && readsReceiver.MatchString(name) && !w.isShort(from.X) {
			w.find(n, "%s.%s makes a copy of %s", pkg, name, types.ExprString(from.X))
			return
		}
		arguments := n.Args
		if strings.HasPrefix(name, "Template.Execute") {
			arguments = n.Args[1:] // after the writer
		}
		for _, a := range arguments {
			if t := w.p.info.TypeOf(a).Underlying(); !w.isShort(a) && !isNumber(t) && !isFunction(t) {
				w.find(n, "%s.%s makes a copy of %s", pkg, name, types.ExprString(a))
				return
			}
		}
		if (name == "Repeat" || strings.HasSuffix(name, "Size")) && !w.isFixed(n.Args[1]) {
			w.find(n, "%s.%s takes its size from %s", pkg, name, types.ExprString(n.Args[1]))
		}
	case (pkg == "strings" || pkg == "bytes") && (strings.HasPrefix(name, "Builder.") || strings.HasPrefix(name, "Buffer.")):
		if _, method, _ := strings.Cut(name, "."); strings.HasPrefix(method, "Write") || method == "Grow" {
			buffer := w.p.root(n.Fun.(*ast.SelectorExpr).X)
			if w.p.isBounded(buffer) {
				return
			}
			if w.loops > 0 || method == "Grow" && !w.isFixed(n.Args[0]) || method != "Grow" && len(n.Args) > 0 && !isNumber(w.p.info.TypeOf(n.Args[0]).Underlying()) && !w.isShort(n.Args[0]) {
				w.grows(buffer, n, "%s grows by %s", name, types.ExprString(n.Args[0]))
			}
		}
	case pkg == "fmt" && strings.HasPrefix(name, "Fprint") || pkg == "io" && name == "WriteString":
		if buffer := w.p.root(withoutAddress(n.Args[0])); w.loops > 0 && isBuffer(w.p.info.TypeOf(n.Args[0])) && !w.p.isBounded(buffer) {
			w.grows(buffer, n, "%s grows in a loop", types.ExprString(n.Args[0]))
		}
	}
}

func withoutAddress(e ast.Expr) ast.Expr {
	if address, ok := e.(*ast.UnaryExpr); ok && address.Op == token.AND {
		return address.X
	}
	return e
}

func isBuffer(t types.Type) bool {
	return slices.Contains([]string{"*strings.Builder", "*bytes.Buffer"}, t.String())
}

func isNumber(t types.Type) bool {
	basic, ok := t.(*types.Basic)
	return ok && basic.Info()&(types.IsNumeric|types.IsBoolean) != 0
}

func isFunction(t types.Type) bool {
	_, ok := t.(*types.Signature)
	return ok
}

func (w *chargedWalk) append(n *ast.CallExpr) {
	to := n.Args[0]
	object := w.p.root(to)
	if w.p.isBounded(object) || w.isRoomy(object) {
		return
	}
	pkg, _ := w.p.callee(n) // a function that appends a string is checked by itself
	if pkg != "" && w.p.isBoundedFunction(n) {
		return
	}
	switch more := n.Args[1:]; {
	case w.loops > 0 && !w.inFresh(to):
		w.grows(object, n, "%s grows in a loop", types.ExprString(to))
	case !w.p.isLocal(to) && len(more) > 0 && pkg == "":
		w.grows(object, n, "%s grows with each call", types.ExprString(to))
	case pkg == "" && n.Ellipsis.IsValid() && !w.isShort(more[0]):
		w.find(n, "append copies %s", types.ExprString(more[0]))
	}
}

// isBoundedFunction reports whether the called function is declared with a bound.
func (p *chargedPackage) isBoundedFunction(call *ast.CallExpr) bool {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return p.isBounded(p.info.ObjectOf(f))
	case *ast.SelectorExpr:
		return p.isBounded(p.info.ObjectOf(f.Sel))
	}
	return false
}

// isRoomy reports whether a variable was made with a capacity, which has been checked there, or has
// been given one.
func (w *chargedWalk) isRoomy(object types.Object) bool {
	if w.p.roomy[object] {
		return true
	}
	call, ok := w.p.definitions[object].(*ast.CallExpr)
	if !ok {
		return false
	}
	pkg, name := w.p.callee(call)
	return pkg == "" && name == "make" && len(call.Args) == 3 || pkg == budgetPackage
}

// inFresh reports whether an append starts from an empty slice in each round: its target is not a
// variable, or the loop declares it.
func (w *chargedWalk) inFresh(to ast.Expr) bool {
	object := w.p.root(to)
	if object == nil {
		return true
	}
	if v, ok := object.(*types.Var); ok && v.IsField() {
		return false
	}
	for i := len(w.stack) - 1; i >= 0; i-- {
		if w.isLoop(w.stack[i]) {
			return object.Pos() > w.stack[i].Pos() && object.Pos() < w.stack[i].End()
		}
	}
	return false
}

// convert checks conversions between strings and bytes.
func (w *chargedWalk) convert(n *ast.CallExpr) {
	to, from := w.p.info.TypeOf(n).Underlying(), w.p.info.TypeOf(n.Args[0]).Underlying()
	_, fromSlice := from.(*types.Slice)
	_, toSlice := to.(*types.Slice)
	basicTo, toText := to.(*types.Basic)
	basicFrom, fromText := from.(*types.Basic)
	toText = toText && basicTo.Info()&types.IsString != 0
	fromText = fromText && basicFrom.Info()&types.IsString != 0
	if !(toText && fromSlice || toSlice && fromText) || w.isShort(n.Args[0]) || w.isFree(n) {
		return
	}
	w.find(n, "%s is a copy", types.ExprString(n))
}

// isFree reports whether the compiler does a conversion without a copy: in comparisons, as a map
// key in a lookup, in range, and as an argument of append.
func (w *chargedWalk) isFree(n *ast.CallExpr) bool {
	if len(w.stack) < 2 {
		return false
	}
	switch parent := w.stack[len(w.stack)-2].(type) {
	case *ast.BinaryExpr:
		return parent.Op == token.EQL || parent.Op == token.NEQ || parent.Op == token.LSS || parent.Op == token.GTR || parent.Op == token.LEQ || parent.Op == token.GEQ
	case *ast.SwitchStmt:
		return parent.Tag == ast.Expr(n)
	case *ast.RangeStmt:
		return parent.X == ast.Expr(n)
	case *ast.IndexExpr:
		if len(w.stack) > 2 {
			if a, ok := w.stack[len(w.stack)-3].(*ast.AssignStmt); ok && slices.Contains(a.Lhs, ast.Expr(parent)) {
				return false
			}
		}
		_, isMap := w.p.info.TypeOf(parent.X).Underlying().(*types.Map)
		return isMap && parent.Index == ast.Expr(n)
	case *ast.CallExpr:
		pkg, name := w.p.callee(parent)
		return pkg == "" && (name == "append" || name == "len" || name == "copy") || pkg == module+"/infer" && name == "Errorf"
	}
	return false
}

// assign checks maps and strings that grow.
func (w *chargedWalk) assign(n *ast.AssignStmt) {
	for i, left := range n.Lhs {
		w.key(left, n)
		basic, ok := w.p.info.TypeOf(left).(*types.Basic)
		if !ok || basic.Info()&types.IsString == 0 || w.loops == 0 || w.inFresh(left) || w.p.isBounded(w.p.root(left)) {
			continue
		}
		grows := n.Tok == token.ADD_ASSIGN
		if n.Tok == token.ASSIGN && len(n.Rhs) == len(n.Lhs) {
			if sum, ok := n.Rhs[i].(*ast.BinaryExpr); ok && sum.Op == token.ADD {
				grows = w.p.root(sum.X) == w.p.root(left)
			}
		}
		if grows {
			w.grows(w.p.root(left), n, "%s grows in a loop", types.ExprString(left))
		}
	}
}

// key checks an assignment to an element of a map.
func (w *chargedWalk) key(left ast.Expr, n ast.Node) {
	index, ok := ast.Unparen(left).(*ast.IndexExpr)
	if !ok || w.isFixed(index.Index) {
		return
	}
	if _, isMap := w.p.info.TypeOf(index.X).Underlying().(*types.Map); !isMap || w.loops == 0 && w.p.isLocal(index.X) {
		return
	}
	if object := w.p.root(index.X); !w.p.isBounded(object) {
		w.grows(object, n, "%s gets another key", types.ExprString(index.X))
	}
}
