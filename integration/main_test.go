package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// buildServer builds the server under test, with the race detector if the tests use it. On machines
// without Go, NEREID_TEST_SERVER names an existing binary.
var buildServer = sync.OnceValues(func() (string, error) {
	if built := os.Getenv("NEREID_TEST_SERVER"); built != "" {
		return filepath.Abs(built)
	}
	return build("nereid-under-test", raceEnabled)
})

// buildPlainServer builds the server without the race detector, for tests that measure memory,
// because the race detector multiplies memory use.
var buildPlainServer = sync.OnceValues(func() (string, error) { return build("nereid-under-test-plain", false) })

func build(name string, race bool) (string, error) { return buildCommand(name, "../cmd/nereid", race) }

// buildCommand builds a command into bin.
func buildCommand(name, path string, race bool) (string, error) {
	binary, err := filepath.Abs("../bin/" + name)
	if err != nil {
		return "", err
	}
	arguments := []string{"build", "-o", binary}
	if race {
		arguments = append(arguments, "-race")
	}
	output, err := exec.Command("go", append(arguments, path)...).CombinedOutput()
	if err != nil {
		return "", &buildError{string(output), err}
	}
	return binary, nil
}

type buildError struct {
	output string
	err    error
}

func (e *buildError) Error() string { return "build the server: " + e.err.Error() + "\n" + e.output }
