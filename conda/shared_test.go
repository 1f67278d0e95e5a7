package conda

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// RunCommand is a Run that uses os/exec.
func RunCommand(ctx context.Context, argv, env []string, dir string) (string, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env, command.Dir = env, dir
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// Canonical returns a temporary directory without symbolic links in its path.
func Canonical(t *testing.T) string {
	t.Helper()
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

func Link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
