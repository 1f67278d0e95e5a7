package env_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestDoctorTellsProblemsAndRemedies(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	usable := testkit.Environment(t, "virtualenv")
	for _, test := range []struct {
		name   string
		args   []string
		status int
		says   []string // in either output
	}{
		{"an environment", []string{usable}, 0, []string{usable + "\n", "form     venv", "python   " + usable + "/bin/python", "models can run here"}},
		{"its program", []string{usable + "/bin/python"}, 0, []string{"form     venv", "models can run here"}},
		{"an empty directory", []string{empty}, 1, []string{"problem  Path " + empty + "/bin/activate does not exist.", "remedy   name a directory that has bin/python"}},
		{"nothing there", []string{"/no/such/place"}, 1, []string{"problem  Failed to get the canonical path for /no/such/place."}},
		{"no archive", []string{"/proc/version"}, 1, []string{"problem  "}},
		{"no path", nil, 2, []string{"the path is missing"}},
		{"two paths", []string{"a", "b"}, 2, []string{`unexpected argument "b" after the path`}},
		{"no time", []string{"--timeout=0s", usable}, 2, []string{"--timeout is 0s"}},
		{"too little time", []string{"--timeout=1ns", usable}, 1, []string{"did not end in time: --timeout is 1ns"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, out, errs := try(dir, append([]string{"doctor"}, test.args...)...)
			if status != test.status {
				t.Errorf("got status %d, %q and %q, want %d", status, out, errs, test.status)
			}
			for _, want := range test.says {
				if !strings.Contains(out+errs, want) {
					t.Errorf("got %q and %q, want %q in them", out, errs, want)
				}
			}
		})
	}
}

func TestDoctorPrintsJSON(t *testing.T) {
	empty := t.TempDir()
	status, out, _ := try(t.TempDir(), "doctor", "--json", empty)
	var report conda.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 1 || report.Path != empty || len(report.Problems) != 1 || report.Problems[0].Remedy == "" {
		t.Errorf("got status %d, %v and %s, want a problem with a remedy", status, err, out)
	}
}

// TestDoctorUnpacksAnArchive checks that doctor unpacks an archive made by conda-pack into the
// cache and describes it.
func TestDoctorUnpacksAnArchive(t *testing.T) {
	archive, dir := testkit.Environment(t, "conda.tar.gz"), t.TempDir()+"/made/by/doctor"
	status, out, errs := try(dir, "doctor", archive)
	for _, want := range []string{"archive  " + archive, "form     conda", "version  3.", "models can run here"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("got status %d, %q and %q, want 0 and %q", status, out, errs, want)
		}
	}
	if _, listed, _ := try(dir, "list"); !strings.Contains(listed, "1 environment") {
		t.Errorf("the cache has %q, want the environment", listed)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Errorf("the cache directory: got %v, %v", entries, err)
	}
}
