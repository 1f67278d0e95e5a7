package testkit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// withoutVariable tells the re-executed binary that it has no Python.
const withoutVariable = "NEREID_TESTKIT_WITHOUT"

func TestMain(m *testing.M) { testkit.Main(m) }

func TestEventuallyAsksUntilTrue(t *testing.T) {
	calls := 0
	testkit.Eventually(t, time.Minute, func() bool { calls++; return calls == 3 })
	if calls != 3 {
		t.Fatalf("got %d calls, want 3", calls)
	}
}

func TestPythonsAreOrdered(t *testing.T) {
	all := testkit.Pythons(t)
	for i := range all[1:] {
		if all[i].Minor > all[i+1].Minor {
			t.Errorf("got %v before %v, want the oldest first", all[i], all[i+1])
		}
	}
	if last := testkit.Python(t); last != all[len(all)-1] {
		t.Errorf("Python: got %v, want the newest, %v", last, all[len(all)-1])
	}
}

// TestWithoutPython does nothing unless TestMissingPythonSkipsOrFails re-executes it.
func TestWithoutPython(t *testing.T) {
	if os.Getenv(withoutVariable) == "" {
		return // this is not the re-executed binary
	}
	testkit.Python(t)
}

// TestMissingPythonSkipsOrFails runs this binary without a Python interpreter. A test that needs
// one is skipped, and fails under make.
func TestMissingPythonSkipsOrFails(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module empty\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		complete, want string
		code           int
	}{
		{"", "--- SKIP: TestWithoutPython", 0},
		{"1", "--- FAIL: TestWithoutPython", 1},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithoutPython$", "-test.v")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), withoutVariable+"=1", testkit.PythonsVariable+"=", testkit.CompleteVariable+"="+test.complete)
		output, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(string(output), test.want) ||
			!strings.Contains(string(output), "no Python to test with: ") {
			t.Errorf("%s=%q: exit code %d and %q, want %d and %q", testkit.CompleteVariable, test.complete, code, output, test.code, test.want)
		}
	}
}
