package python

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/panics"
)

// findInterpreter starts templates of all candidates concurrently and keeps the first, in the order
// of PATH, that can import numpy. It closes the others. All of them end with ctx.
func (p *python) findInterpreter(ctx context.Context) (*template, error) {
	executable := p.wish.executable
	candidates, err := candidates(executable)
	if err != nil {
		return nil, err
	}
	templates := make([]*template, len(candidates)) // bound: PATH
	failures := make([]error, len(candidates))      // bound: PATH
	var started sync.WaitGroup
	for i, path := range candidates {
		started.Go(panics.Guard(p.backend.log, panics.Life, func() {
			templates[i], failures[i] = p.startTemplate(ctx, path)
		}, func(err error) { failures[i] = err }))
	}
	started.Wait()
	var found *template
	for _, t := range templates {
		switch {
		case t == nil:
		case found == nil:
			found = t
		default:
			p.backend.supervisor.Children().Later(t.close)
		}
	}
	if found != nil {
		return found, nil
	}
	var late *lateError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case p.environment != nil:
		return nil, p.diagnose(ctx, failures[0])
	case executable != "" && errors.As(failures[0], &late):
		return nil, fmt.Errorf("python-executable %s: %w", executable, late)
	}
	if _, missing := os.Stat(candidates[0]); executable != "" && errors.Is(missing, fs.ErrNotExist) {
		return nil, fmt.Errorf("python-executable %s: program not found", executable)
	}
	if executable != "" {
		return nil, fmt.Errorf("python-executable %s: %w%s", executable, failures[0], remedy(failures[0], executable))
	}
	if environmental(failures[0]) {
		return nil, fmt.Errorf("python3 on PATH: %s: %w%s", candidates[0], failures[0], remedy(failures[0], candidates[0]))
	}
	var tried strings.Builder // bound: the candidates
	for i, path := range candidates {
		fmt.Fprintf(&tried, "; %s: %v%s", path, failures[i], remedy(failures[i], path))
	}
	return nil, fmt.Errorf("no python3 on PATH can import numpy%s; or name an interpreter that can with --backend-config=python,python-executable=PATH", tried.String())
}

// fatalError is the error of an interpreter that ended before it was initialized.
type fatalError struct {
	err  error
	said string // what Python calls its fatal error, and the exception behind it
}

func (e *fatalError) Error() string { return "Python does not start: " + e.said }
func (e *fatalError) Unwrap() error { return e.err }

// explained adds the output of an interpreter to err. For a fatal error of Python that is the line
// that names it, because a list of threads follows; otherwise the last line that is not empty.
func explained(err error, printed []string) error {
	last := ""
	for i, line := range printed {
		if said, ok := strings.CutPrefix(line, "Fatal Python error: "); ok && begins(printed[i+1:]) {
			// The next lines are Python's state and the exception, if any.
			if i+2 < len(printed) && strings.TrimSpace(printed[i+2]) != "" {
				said += " (" + printed[i+2] + ")"
			}
			return &fatalError{err: err, said: said}
		}
		if strings.TrimSpace(line) != "" {
			last = line
		}
	}
	if last == "" {
		return err
	}
	return fmt.Errorf("%w (it printed: %s)", err, last)
}

// begins reports whether Python's output after a fatal error shows that it is not initialized yet.
// Its fault handler prints the same first line for a crash of a package, but no state.
func begins(behind []string) bool {
	if len(behind) == 0 {
		return false
	}
	state, ok := strings.CutPrefix(behind[0], "Python runtime state: ")
	return ok && strings.TrimSpace(state) != "initialized"
}

// environmental reports whether an interpreter failed because of its environment: variables, or a
// limit of the system. Another interpreter would fail as well, with or without numpy.
func environmental(err error) bool {
	var fatal *fatalError
	return errors.As(err, &fatal) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN)
}

// remedy returns a remedy for an interpreter that failed, or "" if the error is clear.
func remedy(err error, interpreter string) string {
	var fatal *fatalError
	var exit *launch.ExitError
	switch {
	case errors.As(err, &fatal):
		return "; it gets the server's environment: check PYTHONHOME and the other variables that begin with PYTHON"
	case environmental(err):
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "; the file exists, but the program in its first line, or its loader, does not"
	case errors.Is(err, fs.ErrPermission):
		if info, err := os.Stat(interpreter); err == nil && info.IsDir() {
			return "; it is a directory: name the interpreter in it, such as " + filepath.Join(interpreter, "bin/python3")
		}
		return fmt.Sprintf("; user %d may not execute it", os.Geteuid())
	case errors.Is(err, unix.ENOEXEC):
		return "; it is not a program for this machine, " + runtime.GOOS + "/" + runtime.GOARCH
	case errors.As(err, &exit) && exit.Signal != 0:
		return fmt.Sprintf("; if `%s -c 'import numpy'` crashes too, run `%[1]s -m pip install --force-reinstall numpy`", interpreter)
	case errors.As(err, &exit):
		return fmt.Sprintf("; want Python 3.8 or newer with numpy: `%s -c 'import numpy'` must work", interpreter)
	}
	return fmt.Sprintf("; install numpy with `%s -m pip install numpy`", interpreter)
}

// besideBinary returns the directory of this program if it is in a virtual environment: a server
// installed by pip runs its models with that Python and its packages, regardless of PATH.
func besideBinary() []string {
	binary, err := os.Executable()
	if err != nil {
		return nil
	}
	dir := filepath.Dir(binary)
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "pyvenv.cfg")); err != nil {
		return nil
	}
	return []string{dir}
}

// candidates lists the interpreters to try.
//
// bound: PATH
func candidates(executable string) ([]string, error) {
	if executable != "" {
		path, err := filepath.Abs(executable)
		if !strings.Contains(executable, "/") {
			path, err = lookPath(executable)
		}
		if err != nil {
			return nil, fmt.Errorf("python-executable %s: %w", executable, err)
		}
		return []string{path}, nil
	}
	var found []string
	seen := make(map[string]bool)
	for _, dir := range append(besideBinary(), filepath.SplitList(os.Getenv("PATH"))...) {
		if !filepath.IsAbs(dir) {
			continue // as exec.LookPath: never a program of the working directory
		}
		path := filepath.Join(dir, "python3")
		// The same directory under two names is one candidate. A link python3 is not resolved, because it
		// identifies a virtual environment.
		if real, err := filepath.EvalSymlinks(dir); err == nil && !seen[real] {
			seen[real] = true
			if executableFile(path) {
				found = append(found, path)
			}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no python3 on PATH; install Python 3.8 or later with numpy, or name an interpreter with --backend-config=python,python-executable=PATH")
	}
	return found, nil
}

func lookPath(name string) (string, error) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if path := filepath.Join(dir, name); filepath.IsAbs(dir) && executableFile(path) {
			return path, nil
		}
	}
	return "", errors.New("not found on PATH")
}

func executableFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
