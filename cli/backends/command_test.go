package backends_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/backends"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// try runs a command line.
func try(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = backends.Run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// build builds the program nereid_broken, and returns its folder.
func build(t *testing.T) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "broken")
	output, err := exec.Command("go", "build", "-o", filepath.Join(directory, "nereid_broken"), "./testdata/nereid_broken").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return directory
}

// TestBrokenPluginsAreFound runs the conformance suite on a plugin that breaks one rule at a time,
// and expects the report to name that rule.
func TestBrokenPluginsAreFound(t *testing.T) {
	program := build(t)
	for rule, says := range map[string]string{
		"": "", "hooks": "no, thanks", "panics": "Execute panicked", "outputs": "OUT is TYPE_UINT32, want TYPE_INT32",
		"one-answer": "after the final", "one-release": "released twice", "nothing-taken": "Execute has returned an error, though",
	} {
		t.Run("break="+rule, func(t *testing.T) {
			status, out, errs := try("test", program, "--model=testdata/model", "--json", "--backend-config", "break="+rule)
			var report conformance.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
				t.Fatalf("got %v, status %d, %q and %q", err, status, out, errs)
			}
			if want := map[bool]int{true: 0, false: 1}[rule == ""]; status != want {
				t.Errorf("got status %d, want %d: %s", status, want, out)
			}
			for _, r := range report.Results {
				why := strings.Join(r.Why, "\n")
				switch {
				case r.Rule == rule && (r.Status != conformance.Failed || !strings.Contains(why, says)):
					t.Errorf("%s: got %s (%s), want it broken because of %q", r.Rule, r.Status, why, says)
				case r.Rule != rule && r.Status == conformance.Failed:
					t.Errorf("%s: got it broken too: %s", r.Rule, why)
				}
			}
		})
	}
}

func TestReportsAreReadable(t *testing.T) {
	program := build(t)
	status, out, _ := try("test", filepath.Join(program, "nereid_broken"), "--model=testdata/model", "--backend-config=break=outputs")
	for _, want := range []string{"model model\n", "  passed    hooks", "  failed    outputs", "want TYPE_INT32\n", "  untested  goroutines"} {
		if !strings.Contains(out, want) || status != 1 {
			t.Errorf("got status %d and\n%s\nwant 1 and %q", status, out, want)
		}
	}
}

// TestProgramsThatEndAreFound checks that a program that exits fails its requests.
func TestProgramsThatEndAreFound(t *testing.T) {
	status, out, errs := try("test", build(t), "--model=testdata/model", "--backend-config=break=exit")
	if status != 1 || !strings.Contains(out, "failed    process") || errs != "" {
		t.Errorf("got status %d, %q and %q, want 1 and a broken rule", status, out, errs)
	}
}

func TestCommandLinesAreExplained(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "program")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFiles(t, empty, map[string]string{"folder/nereid_data": "", "other/nereid_other": ""})
	if err := os.Chmod(filepath.Join(empty, "other/nereid_other"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		args   []string
		status int
		says   string // in either output
	}{
		{"nothing", nil, 2, "Usage: nereid backend COMMAND"},
		{"help", []string{"--help"}, 0, "Usage: nereid backend COMMAND"},
		{"help of test", []string{"test", "--help"}, 0, "--model DIRECTORY"},
		{"an unknown command", []string{"burn"}, 2, "nereid backend: unknown command \"burn\"\nwant test; see nereid backend --help\n"},
		{"no path", []string{"test"}, 2, "the path is missing"},
		{"no time", []string{"test", "--timeout=0s", empty}, 2, "--timeout is 0s"},
		{"a strange setting", []string{"test", "--backend-config=x", empty}, 2, "want SETTING=VALUE"},
		{"nothing there", []string{"test", filepath.Join(empty, "none")}, 1, "no such file"},
		{"no program", []string{"test", empty}, 1, "contains 0 programs nereid_NAME, want one"},
		{"a program in another folder", []string{"test", filepath.Join(empty, "folder")}, 1, "folder contains 0 programs nereid_NAME, want one"},
		{"a program of another name", []string{"test", file}, 1, "the name of a backend's program must be nereid_NAME"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, out, errs := try(test.args...)
			if status != test.status || !strings.Contains(out+errs, test.says) {
				t.Errorf("got status %d, %q and %q, want %d and %q", status, out, errs, test.status, test.says)
			}
		})
	}
}

func TestModelsAreFoundByTheirBackend(t *testing.T) {
	folder := "../../examples/backend_models"
	got := backends.ModelsOf("minimal", filepath.Join(t.TempDir(), "models"), folder)
	if len(got) != 2 || got[0] != filepath.Join(folder, "batching") || got[1] != filepath.Join(folder, "nonbatching") {
		t.Errorf("got %q, want batching and nonbatching", got)
	}
	if got := backends.ModelsOf("maximal", folder); got != nil {
		t.Errorf("got %q of a backend that none names", got)
	}
}
