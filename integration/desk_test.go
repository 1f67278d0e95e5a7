package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

const modelThatAnswers = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "Y", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([%s], np.int32))]) for _ in requests]
`

// seat is a server that a person has started by `nereid serve`.
type seat struct {
	*terminal.Session
	http int
}

// takeSeat starts one at a terminal.
func takeSeat(t *testing.T, repository string, flags ...string) *seat {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	command := exec.Command(binary, append([]string{"serve", repository, "--backend-config=python,python-executable=" + testkit.Python(t).Path,
		fmt.Sprintf("--http-port=%d", ports[0]), fmt.Sprintf("--grpc-port=%d", ports[1]), fmt.Sprintf("--metrics-port=%d", ports[2])}, flags...)...)
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "TERM=xterm", "NO_COLOR=1")
	return &seat{terminal.Start(t, command), ports[0]}
}

func (s *seat) address(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", s.http, path) }

// TestServeAtATerminal serves a model that loads and one that does not, until Ctrl-C is typed.
func TestServeAtATerminal(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"good/1/model.py": fmt.Sprintf(modelThatAnswers, "1"), "bad/1/model.py": "import not_there",
	})
	s := takeSeat(t, repository)
	s.Await("serving 1 model; Ctrl-C ends it\n", startLimit)
	s.Await("  HTTP     "+s.address("")+"\n", startLimit)
	s.Await("  metrics  http://127.0.0.1:", startLimit)
	response, err := http.Get(s.address("/v2/models/good/ready"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("ready: got status %d, want 200", response.StatusCode)
	}
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
	shown := s.Shown()
	for _, want := range []string{
		"loading 1 of 2", `\x1b\[K✓ good 1  \d+\.\d s\n`, `\x1b\[K✗ bad 1  \d+\.\d s\n`, `\x1b\[K\d\d:\d\d:\d\d error  .*not_there`,
		`\nnot loaded: bad: ` + regexp.QuoteMeta(filepath.Join(repository, "bad/1/model.py")) + ":1: ",
	} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("the terminal does not show %q", want)
		}
	}
	for _, not := range []string{"+-----", "successfully loaded", "TRITONBACKEND_", "Started "} {
		if strings.Contains(shown, not) {
			t.Errorf("the terminal shows %q", not)
		}
	}
}

// line is how each line of the log begins, and table what a start-up table consists of.
var (
	line  = regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.-]+:\d+\] `)
	table = regexp.MustCompile(`^(\+-|\| )`)
)

// TestPlainLinesStayTritons: in a pipe `nereid serve` writes what a server without a command does, and the latter
// writes it at a terminal too, but for quotes around messages.
func TestPlainLinesStayTritons(t *testing.T) {
	repository := writeFiles(t, map[string]string{"good/1/model.py": fmt.Sprintf(modelThatAnswers, "1")})
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	python := "--backend-config=python,python-executable=" + testkit.Python(t).Path
	plain := []string{"--allow-grpc=false", "--allow-metrics=false", "--http-address=127.0.0.1", python}
	check := func(t *testing.T, output string) {
		t.Helper()
		output, _, _ = strings.Cut(output, "Signal (")
		for _, want := range []string{"loading: good:1", "successfully loaded 'good'", "| good  | 1       | READY  |", "| model_repository_path[0]", "Started HTTPService at 127.0.0.1:"} {
			if !strings.Contains(output, want) {
				t.Errorf("got %q, want %q in it", output, want)
			}
		}
		for one := range strings.Lines(strings.TrimSuffix(output, "^C")) {
			if one != "\n" && !line.MatchString(one) && !table.MatchString(one) {
				t.Errorf("got the line %q, want one of the log or of a table", one)
			}
		}
	}
	t.Run("serve in a pipe", func(t *testing.T) {
		s := launchProgram(t, []string{binary, "serve"}, "", repository, python)
		s.waitReady()
		s.stop()
		check(t, s.log.String())
	})
	t.Run("no command at a terminal", func(t *testing.T) {
		command := exec.Command(binary, append([]string{"--model-repository=" + repository, fmt.Sprintf("--http-port=%d", freePorts(t, 1)[0])}, plain...)...)
		s := terminal.Start(t, command)
		s.Await("Started HTTPService at", startLimit)
		s.Type("\x03")
		if status := s.Wait(startLimit); status != 0 {
			t.Errorf("got status %d after Ctrl-C, want 0", status)
		}
		check(t, s.Shown())
		if strings.Contains(s.Shown(), "\x1b") {
			t.Error("the terminal got colours")
		}
	})
}
