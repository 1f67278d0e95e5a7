package conda_test

import (
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestRealEnvironmentsAreUsable examines a real environment of each form, by its directory and by
// its interpreter.
func TestRealEnvironmentsAreUsable(t *testing.T) {
	testkit.Story(t)
	for _, c := range []struct {
		name string
		form conda.Form
	}{
		{"uv-oldest", conda.Venv}, {"uv-newest", conda.Venv}, {"virtualenv", conda.Venv}, {"standalone", conda.Prefix}, {"conda", conda.Conda},
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := testkit.Environment(t, c.name)
			envPath, err := conda.Locate(directory, "/")
			if err != nil {
				t.Fatal(err)
			}
			inspected, err := conda.Inspect(envPath)
			if err != nil {
				t.Fatal(err)
			}
			r := conda.Examine(t.Context(), envPath, conda.RunCommand, os.Environ())
			if len(r.Problems) != 0 || r.Form != c.form || r.Python != directory+"/bin/python" || r.Numpy == "" {
				t.Errorf("got %+v, want %s without problems", r, c.form)
			}
			if inspected.Version == "" || !strings.HasPrefix(r.Version, inspected.Version) {
				t.Errorf("files tell version %q, the interpreter %q", inspected.Version, r.Version)
			}
			if err := inspected.Diagnose(t.Context(), conda.RunCommand, os.Environ()); err != nil {
				t.Errorf("Diagnose: %v", err)
			}
			// The path of its python names the same environment.
			program, err := conda.Locate(directory+"/bin/python", "/")
			if err != nil {
				t.Fatal(err)
			}
			if r := conda.Examine(t.Context(), program, conda.RunCommand, os.Environ()); r.Err() != nil || r.Numpy == "" || (r.Form != c.form && c.form != conda.Prefix) {
				t.Errorf("by its program: got %+v", r)
			}
		})
	}
}
