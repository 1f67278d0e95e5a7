package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestNewBackendIsServed creates a backend with `nereid new backend`, builds it with this SDK,
// serves its model, and expects the generated client to pass.
func TestNewBackendIsServed(t *testing.T) {
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	directory, root := t.TempDir(), testkit.Root(t)
	command := exec.Command(binary, "new", "backend", "echo", "--directory", directory, "--sdk", root)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("nereid new backend: %v\n%s", err, output)
	}
	place := filepath.Join(directory, "echo")
	// `go mod tidy` would download modules that only tests of other modules need.
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place, "go.sum"), sums, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "bin/echo/nereid_echo", "./nereid_echo")
	build.Dir, build.Env = place, append(os.Environ(), "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	s := start(t, "", filepath.Join(place, "models"), "--backend-directory="+filepath.Join(place, "bin"))
	output, err := exec.Command(clientPython(t), filepath.Join(place, "client.py"), fmt.Sprintf("--url=127.0.0.1:%d", s.http)).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "PASS: echo\n") {
		t.Errorf("%v\n%s", err, output)
	}
}
