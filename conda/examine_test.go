package conda

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// run is a Run of os/exec.
func run(ctx context.Context, argv, env []string, dir string) (string, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env, command.Dir = env, dir
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// TestRealEnvironmentsAreUsable examines an environment of each form, and an interpreter
// of none.
func TestRealEnvironmentsAreUsable(t *testing.T) {
	for _, c := range []struct {
		name string
		form Form
	}{
		{"uv-oldest", Venv}, {"uv-newest", Venv}, {"virtualenv", Venv}, {"standalone", Prefix}, {"conda", Conda},
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := testkit.Environment(t, c.name)
			envPath, err := Locate(directory, "/")
			if err != nil {
				t.Fatal(err)
			}
			inspected, err := Inspect(envPath)
			if err != nil {
				t.Fatal(err)
			}
			r := Examine(t.Context(), envPath, run, os.Environ())
			if len(r.Problems) != 0 || r.Form != c.form || r.Python != directory+"/bin/python" || r.Numpy == "" {
				t.Errorf("got %+v, want %s without problems", r, c.form)
			}
			if inspected.Version == "" || !strings.HasPrefix(r.Version, inspected.Version) {
				t.Errorf("files tell version %q, the interpreter %q", inspected.Version, r.Version)
			}
			if err := inspected.Diagnose(t.Context(), run, os.Environ()); err != nil {
				t.Errorf("Diagnose: %v", err)
			}
			// Its python by name is the same environment.
			program, err := Locate(directory+"/bin/python", "/")
			if err != nil {
				t.Fatal(err)
			}
			if r := Examine(t.Context(), program, run, os.Environ()); r.Err() != nil || r.Numpy == "" || (r.Form != c.form && c.form != Prefix) {
				t.Errorf("by its program: got %+v", r)
			}
		})
	}
}
