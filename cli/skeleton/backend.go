package skeleton

import (
	"fmt"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/nereid-serving/nereid/cli/command"
)

// backend holds the template values of a backend.
type backend struct {
	Name    string
	Package string
	Module  string // its path
	Go      string // the language version
	Version string // of Nereid's module; "": `go mod tidy` finds it
	SDK     string // a directory that replaces that module
}

var (
	goodModule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~/-]*$`)
	// released matches a released version of the module.
	released = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)
	language = regexp.MustCompile(`^go([0-9]+\.[0-9]+)`)
)

func makeBackend(i *invocation) error {
	b := backend{Go: "1.26"}
	directory := i.directory()
	i.flags.StringVar(&b.Module, "module", "", "`PATH` of the Go module (default example.com/NAME)")
	i.flags.StringVar(&b.SDK, "sdk", "", "`DIRECTORY` of Nereid's sources, to use them instead of a release")
	name, err := i.parse(goodName, "digits and underscores")
	if err != nil {
		return err
	}
	b.Name, b.Package = name, strings.ToLower(name)
	if why := unfit(b.Package); why != "" {
		return command.Usagef("the name %q gives the Go package %s, which %s: choose another name", name, b.Package, why)
	}
	if b.Module == "" {
		b.Module = "example.com/" + b.Package
	}
	if !goodModule.MatchString(b.Module) {
		return command.Usagef("--module is %q, want a path such as example.com/%s", b.Module, b.Package)
	}
	if v := language.FindStringSubmatch(runtime.Version()); v != nil {
		b.Go = v[1]
	}
	switch {
	case b.SDK != "":
		if b.SDK, err = filepath.Abs(b.SDK); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(b.SDK, "sdk", "backend.go")); err != nil {
			return fmt.Errorf("--sdk: %w: want the folder with Nereid's go.mod", err)
		}
		b.Version = "v0.0.0"
	case released.MatchString(i.release):
		b.Version = "v" + i.release
	}
	files, err := write("backend", &b, *directory, name)
	if err != nil {
		return err
	}
	return i.tell(*directory, name, files)
}

// unfit says why a backend's files could not be compiled, or would be confusing, with this package
// name, or returns "".
func unfit(name string) string {
	switch {
	case token.IsKeyword(name):
		return "is a keyword of Go"
	case types.Universe.Lookup(name) != nil:
		return "would hide a predeclared identifier of Go"
	case name == "main" || name == "init":
		return "no Go file can import"
	case name == "plugin":
		return "main.go already imports from the SDK"
	case strings.HasSuffix(name, "_test"):
		return "is reserved for Go tests"
	}
	return ""
}
