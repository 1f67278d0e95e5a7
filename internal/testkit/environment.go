package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Environment returns the path of an environment that "make environments" creates: "tools",
// "wheels", "uv-oldest", "uv-newest", "virtualenv", "standalone", "conda", or "conda.tar" with a
// suffix; .ci/environments describes them. If it does not exist, the test Misses it; if this
// machine cannot have it, the test is skipped. Tests share it and do not write to it.
func Environment(t testing.TB, name string) string {
	t.Helper()
	directory := filepath.Join(Root(t), ".environments")
	if reason, err := os.ReadFile(filepath.Join(directory, name+".absent")); err == nil {
		t.Skipf("no environment %s: %s", name, strings.TrimSpace(string(reason)))
	}
	path := filepath.Join(directory, name)
	if _, err := os.Stat(path + ".made"); err != nil {
		Missing(t, "no environment %s: run \"make environments\"", name)
	}
	return path
}
