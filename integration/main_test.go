package integration

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// buildServer builds the server under test, with the race detector if the tests
// have it.
var buildServer = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs("../bin/nereid-under-test")
	if err != nil {
		return "", err
	}
	arguments := []string{"build", "-o", binary}
	if raceEnabled {
		arguments = append(arguments, "-race")
	}
	output, err := exec.Command("go", append(arguments, "../cmd/nereid")...).CombinedOutput()
	if err != nil {
		return "", &buildError{string(output), err}
	}
	return binary, nil
})

type buildError struct {
	output string
	err    error
}

func (e *buildError) Error() string { return "build the server: " + e.err.Error() + "\n" + e.output }
