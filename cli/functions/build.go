// Package functions makes model repositories of Python files whose functions are models
// (docs/functions.md). The work is done by the Python package nereid, in the user's interpreter.
package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/stub"
)

// IsFile reports whether an argument names a Python file instead of a model repository.
func IsFile(path string) bool {
	return strings.HasSuffix(path, ".py") && !strings.Contains(path, "://")
}

// Form is the form of a repository.
type Form string

const (
	// Copy makes a repository that contains all that it needs.
	Copy Form = "copy"
	// Refer makes a repository whose models import the file from where it is.
	Refer Form = "refer"
)

// Built says what Build has made of a file.
type Built struct {
	Models   []string `json:"models"`
	Files    []string `json:"files"` // the file and the modules of its folder that it imports
	Warnings []string `json:"warnings"`
}

// A Mistake is an error in the user's file. Its text is that of Python, with file and line.
type Mistake struct{ Text string }

func (m *Mistake) Error() string { return m.Text }

// start runs package nereid from the directory in its first argument.
const start = `import sys; sys.path[0] = sys.argv.pop(1); from nereid.build import main; sys.exit(main(*sys.argv[1:]))`

// noNumpy is the exit code of a Python without numpy.
const noNumpy = 3

// Build imports a file with the first interpreter that models may use, and writes a repository with
// its models to the directory output. All that the file prints goes to stderr. The error is a
// *Mistake if the file is at fault. others has the files of models that are served beside it, by
// the models' names, which no model of the file may have.
func Build(ctx context.Context, settings map[string]string, file, output string, form Form, others map[string]string, stderr io.Writer) (*Built, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("the file with functions: %w", err)
	}
	config, err := python.ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	backend, err := python.New(python.Environment{Config: config, Files: []fs.FS{stub.Files, pyutils.Files}})
	if err != nil {
		return nil, err
	}
	interpreters, err := backend.Interpreters()
	if err != nil {
		return nil, err
	}
	beside, err := json.Marshal(others)
	if err != nil {
		return nil, err
	}
	for _, interpreter := range interpreters {
		var out, said bytes.Buffer
		run := exec.CommandContext(ctx, interpreter, "-c", start, backend.Directory(), file, output, string(form), string(beside))
		run.Stdout, run.Stderr = &out, &said
		err := run.Run()
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &exit) && exit.ExitCode() == noNumpy && config.Executable == "":
			continue
		case errors.As(err, &exit) && exit.ExitCode() == noNumpy:
			return nil, fmt.Errorf("%s has no numpy: install it with %[1]s -m pip install numpy", interpreter)
		case errors.As(err, &exit) && exit.ExitCode() == 1:
			return nil, &Mistake{strings.TrimSpace(said.String())}
		case err != nil:
			return nil, fmt.Errorf("%s: %w: %s", interpreter, err, strings.TrimSpace(said.String()))
		}
		_, _ = said.WriteTo(stderr) // prints of the file; there is nowhere else to report an error
		built := &Built{}
		if err := json.Unmarshal(out.Bytes(), built); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", interpreter, out.String(), err)
		}
		return built, nil
	}
	return nil, fmt.Errorf("no python3 on PATH has numpy: name another Python with --backend-config=python,python-executable=PATH, or run %s -m pip install numpy", interpreters[0])
}
