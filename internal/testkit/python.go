package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// pythonsVariable lists the interpreters to test with, separated by colons. It replaces those of
// .venvs.
const pythonsVariable = "NEREID_TEST_PYTHONS"

// Interpreter is a Python with numpy.
type Interpreter struct {
	Path  string // of the executable
	Minor int    // 8 for Python 3.8
	Numpy string // numpy's version, such as "1.24.4"
}

// String returns the name for subtests, such as "python3.8-numpy1.24.4".
func (i Interpreter) String() string {
	return fmt.Sprintf("python3.%d-numpy%s", i.Minor, i.Numpy)
}

// Python returns the newest of Pythons.
func Python(t testing.TB) Interpreter {
	t.Helper()
	all := Pythons(t)
	return all[len(all)-1]
}

// Pythons returns the interpreters to test with, oldest first: those in NEREID_TEST_PYTHONS, else
// those of .venvs, which "make venvs" creates. If none exists, the test Misses it; if one does not
// work, the test fails.
func Pythons(t testing.TB) []Interpreter {
	t.Helper()
	found, err := findPythons()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		Missing(t, "no Python to test with: run \"make venvs\" or set %s", pythonsVariable)
	}
	return slices.Clone(found)
}

var findPythons = sync.OnceValues(func() ([]Interpreter, error) {
	paths := filepath.SplitList(os.Getenv(pythonsVariable))
	if len(paths) == 0 {
		root, err := repositoryRoot()
		if err != nil {
			return nil, err
		}
		paths, err = filepath.Glob(filepath.Join(root, ".venvs", "*", "bin", "python"))
		if err != nil {
			return nil, err
		}
	}
	var found []Interpreter
	for _, path := range paths {
		in, err := ask(path)
		if err != nil {
			return nil, err
		}
		found = append(found, in)
	}
	slices.SortStableFunc(found, func(a, b Interpreter) int {
		if a.Minor != b.Minor {
			return a.Minor - b.Minor
		}
		return strings.Compare(a.Numpy, b.Numpy)
	})
	return found, nil
})

// ask runs an interpreter to get its version and its numpy's.
func ask(path string) (Interpreter, error) {
	const script = "import sys, numpy; print(sys.version_info[1], numpy.__version__)"
	output, err := exec.Command(path, "-c", script).CombinedOutput()
	if err != nil {
		return Interpreter{}, fmt.Errorf("ask %s for its version: %w: %s", path, err, output)
	}
	fields := strings.Fields(string(output))
	if len(fields) != 2 {
		return Interpreter{}, fmt.Errorf("ask %s for its version: got %q, want two words", path, output)
	}
	minor, err := strconv.Atoi(fields[0])
	if err != nil {
		return Interpreter{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return Interpreter{Path: path, Minor: minor, Numpy: fields[1]}, nil
}
