package internal

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// authorsModules are the modules of other projects that a Go backend links.
var authorsModules = []string{
	"github.com/rs/zerolog",
	"github.com/vmihailenco/msgpack/v5",
	"golang.org/x/sys",
	"google.golang.org/protobuf",
}

// TestAuthorsLinkFewModules follows the imports of the packages that backend authors use. Each
// further module would be a line in every author's go.mod.
func TestAuthorsLinkFewModules(t *testing.T) {
	imports := make(map[string][]string) // by directory
	for _, file := range goFiles(t) {
		if file.test {
			continue
		}
		for _, spec := range file.syntax.Imports {
			directory := path.Dir(file.path)
			imports[directory] = append(imports[directory], strings.Trim(spec.Path.Value, `"`))
		}
	}
	visited := make(map[string]bool)
	var visit func(directory string)
	visit = func(directory string) {
		if visited[directory] {
			return
		}
		visited[directory] = true
		for _, imported := range imports[directory] {
			host, _, _ := strings.Cut(imported, "/")
			if inside, ours := strings.CutPrefix(imported, module+"/"); ours {
				visit(inside)
			} else if strings.Contains(host, ".") && !linkedByAuthors(imported) {
				t.Errorf("%s imports %s, which programs of Go backends would link", directory, imported)
			}
		}
	}
	for _, directory := range []string{"sdk", "sdk/plugin", "sdk/conformance"} {
		visit(directory)
	}
	if len(visited) < 10 {
		t.Errorf("visited %d packages, want more: does the search still work?", len(visited))
	}
}

func linkedByAuthors(imported string) bool {
	return slices.ContainsFunc(authorsModules, func(m string) bool { return strings.HasPrefix(imported+"/", m+"/") })
}
