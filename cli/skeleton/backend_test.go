package skeleton_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/skeleton"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestBackendsPassTheirOwnTests creates a backend, builds its program and runs the generated tests.
func TestBackendsPassTheirOwnTests(t *testing.T) {
	testkit.Story(t)
	directory, root := t.TempDir(), testkit.Root(t)
	status, out, errs := try("backend", "Echo2", "--directory", directory, "--module", "example.org/me/echo", "--sdk", root)
	if status != 0 || errs != "" || !strings.Contains(out, filepath.Join(directory, "Echo2", "backend.go")) {
		t.Fatalf("got status %d, %q and %q", status, out, errs)
	}
	destination := filepath.Join(directory, "Echo2")
	for _, file := range []string{".gitignore", "Makefile", "README.md", "client.py", "go.mod", "models/Echo2_example/config.pbtxt", "models/Echo2_example/1", "nereid_Echo2/main.go"} {
		if _, err := os.Stat(filepath.Join(destination, file)); err != nil {
			t.Error(err)
		}
	}
	// `go mod tidy` would download modules that only tests of dependencies need.
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(destination, "go.sum"), sums, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"build", "-o", "bin/Echo2/nereid_Echo2", "./nereid_Echo2"}, {"vet", "./..."}, {"test", "./..."}} {
		command := exec.Command("go", args...)
		command.Dir, command.Env = destination, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
	if formatted, err := exec.Command("gofmt", "-l", destination).CombinedOutput(); err != nil || len(formatted) > 0 {
		t.Errorf("gofmt: %v: %s", err, formatted)
	}
}

func TestReleasesAreRequired(t *testing.T) {
	for release, want := range map[string]string{"1.2.3": "\nrequire github.com/nereid-serving/nereid v1.2.3\n", "dev": "", "1.2.3+abcdef": ""} {
		directory := t.TempDir()
		if status := skeleton.Run([]string{"backend", "b", "--directory", directory}, release, &strings.Builder{}, &strings.Builder{}); status != 0 {
			t.Fatalf("got status %d", status)
		}
		text, err := os.ReadFile(filepath.Join(directory, "b", "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "module example.com/b\n") || !strings.HasSuffix(string(text), want) || want == "" && strings.Contains(string(text), "require") {
			t.Errorf("%s: got\n%s, want %q at its end", release, text, want)
		}
	}
}
