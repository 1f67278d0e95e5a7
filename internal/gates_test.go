package internal

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// gates are the variables of the Makefile that select tests by name, with the functions that those
// tests call.
var gates = map[string][]string{
	"DIFFERENTIAL": {"yardstick", "askBoth", "runOracle"},
	"DEVICES":      {"onDeviceServer", "deviceModeServer", "cudaServer", "onDevices", "launchOnDevices"},
}

// TestGatesNameTheirTests finds tests that "make differential" and "make test-gpu" would leave out.
func TestGatesNameTheirTests(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	files := goFiles(t)
	for variable, functions := range gates {
		line := regexp.MustCompile(`(?m)^` + variable + ` *:= (.*)$`).FindSubmatch(makefile)
		if line == nil {
			t.Fatalf("the Makefile has no %s", variable)
		}
		pattern := regexp.MustCompile(strings.ReplaceAll(string(line[1]), "$$", "$"))
		found := 0
		for _, file := range files {
			if !file.test || strings.HasPrefix(file.path, "internal/") {
				continue
			}
			for _, d := range file.syntax.Decls {
				test, ok := d.(*ast.FuncDecl)
				if !ok || !strings.HasPrefix(test.Name.Name, "Test") || test.Name.Name == "TestMain" {
					continue
				}
				if !callsOneOf(test, functions) {
					continue
				}
				found++
				if !pattern.MatchString(test.Name.Name) {
					t.Errorf("%s: %s calls %s, but %s of the Makefile does not match it",
						file.path, test.Name.Name, strings.Join(functions, " or "), variable)
				}
			}
		}
		if found == 0 {
			t.Errorf("no test calls %s", strings.Join(functions, " or "))
		}
	}
}

// callsOneOf reports whether a test itself calls a function of one of the names, in any package.
func callsOneOf(test *ast.FuncDecl, names []string) bool {
	calls := false
	ast.Inspect(test, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		called := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			called = f.Name
		case *ast.SelectorExpr:
			called = f.Sel.Name
		}
		for _, name := range names {
			calls = calls || called == name
		}
		return true
	})
	return calls
}
