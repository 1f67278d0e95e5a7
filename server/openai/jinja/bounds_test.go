package jinja

import (
	"errors"
	"go/ast"
	goparser "go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// large returns named values that far exceed the memory for a rendering.
func large() map[string]Value {
	text := strings.Repeat("aB \u00e9\n<{}%s.", 1<<16)
	numbers, texts, dict := List{}, List{}, &Dict{}
	for i := range 1 << 14 {
		numbers = append(numbers, int64(i+1000))
		texts = append(texts, strings.Repeat("Text ", 8)+strconv.Itoa(i))
		dict.Set(strconv.Itoa(i), texts[i])
	}
	var shared, deep Value = List{text}, "x"
	for range 40 {
		shared = List{shared, shared}
	}
	for range 4 * maxNested {
		deep = List{deep}
	}
	return map[string]Value{"text": text, "numbers": numbers, "texts": texts, "dict": dict, "shared": shared, "deep": deep,
		"many": int64(1) << 30, "huge": int64(1)<<62 + 1}
}

// namesIn returns the strings in the switch of a function.
func namesIn(t *testing.T, file, function string) (names []string) {
	t.Helper()
	source, err := goparser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range source.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if clause, ok := n.(*ast.CaseClause); ok {
				for _, e := range clause.List {
					name, err := strconv.Unquote(e.(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					names = append(names, name)
				}
			}
			return true
		})
	}
	return names
}

// generated returns templates that apply each filter, test, method, function and operator to each
// value, with various arguments.
func generated(t *testing.T, values []string) (list []string) {
	t.Helper()
	each := func(form string, names []string) {
		for _, name := range names {
			list = append(list, strings.ReplaceAll(form, "@", name))
		}
	}
	arguments := []string{"", "''", "text", "many", "'a', text", "many, text", "1, 'value'", "many, true, true"}
	filters := append(slices.Sorted(maps.Keys(filters)), namesIn(t, "filters.go", "filterNamed")...)
	for _, v := range values {
		for _, args := range arguments {
			each("{% set x = "+v+" | @("+args+") %}", filters)
		}
		each("{% set x = "+v+" | map('@') | list %}", filters)
		each("{% set x = "+v+" | map(attribute='@') | list %}", slices.Sorted(maps.Keys(textMethods)))
		each("{% set x = "+v+" | tojson(@) %}", []string{"indent=4", "indent='ab'", "indent=text", "sort_keys=true", "ensure_ascii=true", "separators=[text, text]"})
		for _, table := range [][]string{slices.Sorted(maps.Keys(textMethods)), slices.Sorted(maps.Keys(dictMethods)), slices.Sorted(maps.Keys(listMethods))} {
			for _, args := range arguments {
				each("{% set x = "+v+".@("+args+") %}", table)
			}
		}
		for _, other := range values {
			each("{% set x = "+v+" @ "+other+" %}", slices.Concat(comparisons, sums, joins, products, powers, []string{"in", "not in", "and", "or"}))
		}
		each("{% set x = "+v+" | select('@', text) | list %}{% set x = "+v+" | select('@', "+v+") | list %}", slices.Sorted(maps.Keys(tests)))
		for _, f := range globals.names {
			each("{% set x = "+f.name+"(@) %}", []string{v, "0, " + v, "0, many, " + v, "0, -many, -1", "x=" + v, v + ", x=" + v})
		}
		each("{% set x = "+v+"[@] %}", []string{"1:", "::-1", "::2", ":", "many", "-1", "0", v, "'a'", "many::many", "-5:-1"})
		list = append(list, "{{ "+v+" }}", "{% for x in "+v+" %}{{ x }}{% endfor %}", "{% for x in "+v+" if x %}{% endfor %}", "{% set x %}{{ "+v+" }}{% endset %}",
			"{% filter upper %}{{ "+v+" }}{% endfilter %}", "{% macro m(x) %}{{ x }}{{ "+v+" }}{% endmacro %}{{ m("+v+") }}", "{% with x = ["+v+", "+v+"] %}{{ x }}{% endwith %}",
			"{% for x in "+v+" %}{% macro m() %}{{ x }}{% endmacro %}{% endfor %}", "{% set ns = namespace() %}{% for x in "+v+" %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
			"{% set ns = namespace(l=[]) %}{% for x in "+v+" %}{% set ns.l = ns.l + [loop] %}{% endfor %}")
	}
	return list
}

// TestNothingGrowsUncounted applies each filter, test, method, function and operator to large
// values with little memory. Each must request memory before it allocates, and must end.
func TestNothingGrowsUncounted(t *testing.T) {
	const (
		room  = 256 << 10
		slack = 160 << 10
		step  = 48 // bytes of garbage that a step may leave, such as a boxed number
	)
	errRoom := errors.New("no room")
	variables := large()
	list := generated(t, slices.Sorted(maps.Keys(variables)))
	done, refused := 0, 0
	for _, source := range list {
		template, err := Parse(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		granted := int64(0)
		m := NewMeter(Limits{Steps: 40_000, Room: func(n int64) error {
			if granted+n > room {
				return errRoom
			}
			granted += n
			return nil
		}})
		var ended error
		allocated := testkit.Allocated(func() { _, ended = m.Render(template, variables) })
		if most := uint64(2*granted + slack + int64(step*m.steps)); allocated > most {
			t.Errorf("%s: %d bytes are allocated, %d were asked for, in %d steps (%.80v)", source, allocated, granted, m.steps, ended)
		}
		if errors.Is(ended, errRoom) {
			refused++
		}
		if ended == nil {
			done++
		}
		if ended != nil && len(ended.Error()) > 1<<10 {
			if raised := (*RaisedError)(nil); !errors.As(ended, &raised) {
				t.Errorf("%s: an error of %d bytes", source, len(ended.Error()))
			}
		}
	}
	if done < len(list)/20 || refused < len(list)/20 {
		t.Errorf("of %d templates %d are rendered and %d refused for want of room: too few", len(list), done, refused)
	}
}

// allowed are the functions whose allocations do not depend on the size of their arguments.
var allowed = map[string]string{
	"fmt":     "Errorf",
	"slices":  "Reverse SortFunc SortStableFunc",
	"strconv": "AppendInt ParseFloat ParseInt",
	"strings": "Builder Compare Contains Count Cut HasPrefix HasSuffix Index IndexAny IndexFunc LastIndex Trim TrimFunc TrimLeft TrimLeftFunc TrimPrefix " +
		"TrimRight TrimRightFunc TrimSpace TrimSuffix",
}

// TestOnlyTheMeterAllocates checks in the sources that code that runs during a rendering allocates
// through Meter, or states the bound of the allocation in a comment on the line.
func TestOnlyTheMeterAllocates(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || slices.Contains([]string{"lexer.go", "parser.go", "expressions.go"}, path) {
			continue // tests, and the parser of the operator's templates
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(source), "\n")
		files := gotoken.NewFileSet()
		syntax, err := goparser.ParseFile(files, path, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if n == nil {
				return true
			}
			line := files.Position(n.Pos()).Line
			if what := allocates(n); what != "" && !strings.Contains(lines[line-1], "// bound: ") {
				t.Errorf("%s:%d: %s: use a method of Meter or writer, or say in a comment behind the line what bounds it: // bound: …", path, line, what)
			}
			return true
		})
	}
}

// allocates names the part of a node whose allocation may depend on the size of a value.
func allocates(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.Ident:
			if slices.Contains([]string{"append", "make", "new", "string"}, f.Name) {
				return f.Name
			}
		case *ast.ArrayType:
			return "conversion"
		case *ast.SelectorExpr:
			pkg, ok := f.X.(*ast.Ident)
			if !ok {
				return ""
			}
			if names, known := allowed[pkg.Name]; known && !slices.Contains(strings.Fields(names), f.Sel.Name) {
				return pkg.Name + "." + f.Sel.Name
			}
		}
	case *ast.BinaryExpr:
		if isText(n.X) || isText(n.Y) {
			if n.Op == gotoken.ADD {
				return "+"
			}
		}
	case *ast.CompositeLit:
		if name, ok := n.Type.(*ast.Ident); ok && name.Name == "List" {
			return "List"
		}
	}
	return ""
}

func isText(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Kind == gotoken.STRING
}
