package internal

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// walks are the sections of docs/architecture.md that follow one request through the functions of
// this repository, with the minimum number of functions that each names.
var walks = map[string]int{
	"## Walk: a tensor over HTTP":    20,
	"## Walk: a BLS request":         10,
	"## Walk: a step of an ensemble": 6,
}

// functionName matches a code span with a function: the path of a package, the type of a method,
// and the function.
var functionName = regexp.MustCompile("`([a-z0-9_]+(?:/[a-z0-9_]+)*)\\.((?:\\w+\\.)?\\w+)`")

// TestWalksNameFunctions checks that each function in the walks exists.
func TestWalksNameFunctions(t *testing.T) {
	content, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	known := functions(t)
	for heading, least := range walks {
		_, section, found := strings.Cut(string(content), heading+"\n")
		if !found {
			t.Errorf("docs/architecture.md has no section %q", heading)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		names := functionName.FindAllStringSubmatch(section, -1)
		if len(names) < least {
			t.Errorf("%q names %d functions, want at least %d", heading, len(names), least)
		}
		for _, name := range names {
			if folder, function := name[1], name[2]; !slices.Contains(known[folder], function) {
				t.Errorf("%q names %s.%s, which is not there", heading, folder, function)
			}
		}
	}
}

// functions lists the functions and methods of each folder with Go files, as "Type.Method" without
// a star, and of each Python module.
func functions(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	for _, file := range goFiles(t) {
		if file.test {
			continue
		}
		folder := path.Dir(file.path)
		for _, decl := range file.syntax.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok {
				known[folder] = append(known[folder], receiver(function)+function.Name.Name)
			}
		}
	}
	class := regexp.MustCompile(`^class (\w+)`)
	def := regexp.MustCompile(`^(    )?(?:async )?def (\w+)`)
	walk(t, func(name string, content []byte) {
		if path.Ext(name) != ".py" {
			return
		}
		module := strings.TrimSuffix(name, ".py")
		within := ""
		for line := range strings.Lines(string(content)) {
			if m := class.FindStringSubmatch(line); m != nil {
				within = m[1] + "."
			} else if m := def.FindStringSubmatch(line); m != nil {
				if m[1] == "" {
					within = ""
				}
				known[module] = append(known[module], within+m[2])
			}
		}
	})
	return known
}

func receiver(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return ""
	}
	at := function.Recv.List[0].Type
	for {
		switch x := at.(type) {
		case *ast.StarExpr:
			at = x.X
		case *ast.IndexExpr:
			at = x.X
		case *ast.IndexListExpr:
			at = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}
