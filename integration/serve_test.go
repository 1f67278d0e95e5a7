package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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

// seat is a server that runs `nereid serve` on a terminal.
type seat struct {
	*terminal.Session
	http int
}

// takeSeat starts `nereid serve` on a terminal.
func takeSeat(t *testing.T, repository string, flags ...string) *seat {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	ports := testkit.Ports(t, 3)
	command := exec.Command(binary, append([]string{"serve", repository, "--backend-config=python,python-executable=" + testkit.Python(t).Path,
		fmt.Sprintf("--http-port=%d", ports[0]), fmt.Sprintf("--grpc-port=%d", ports[1]), fmt.Sprintf("--metrics-port=%d", ports[2])}, flags...)...)
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "TERM=xterm", "NO_COLOR=1")
	return &seat{terminal.Start(t, command), ports[0]}
}

func (s *seat) address(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", s.http, path) }

// TestServeAtATerminal serves one model that loads and others that do not, until Ctrl-C. The
// terminal must show the results and the faults of the loads, and no log tables.
func TestServeAtATerminal(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"good/1/model.py": fmt.Sprintf(modelThatAnswers, "1"), "bad/1/model.py": "import not_there",
		"unread/config.pbtxt": "nonsense {",
	})
	s := takeSeat(t, repository)
	s.Await("serving 1 model; press Ctrl-C to stop\n", startLimit)
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
	if n := strings.Count(shown, "unknown field: nonsense"); n != 1 {
		t.Errorf("the terminal shows the fault of a configuration %d times, want once", n)
	}
	for _, want := range []string{
		"loading 1 of 2", `\x1b\[K✓ good 1  \d+\.\d s\n`, `\x1b\[K✗ bad 1  \d+\.\d s\n    ` + regexp.QuoteMeta(filepath.Join(repository, "bad/1/model.py")) + ":1: ModuleNotFoundError: .*; install it ", `\x1b\[K\d\d:\d\d:\d\d error  .*not_there`,
		`not loaded: unread: ` + regexp.QuoteMeta(filepath.Join(repository, "unread/config.pbtxt")) + ":1:",
	} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("the terminal does not show %q", want)
		}
	}
	for _, not := range []string{"+-----", "successfully loaded", "TRITONBACKEND_", "Started ", "failed to load", "not loaded: bad", "Poll failed", "At:"} {
		if strings.Contains(shown, not) {
			t.Errorf("the terminal shows %q", not)
		}
	}
}

// TestCtrlCShowsPendingRequests types Ctrl-C during a request. The terminal must show the wait, and
// the request must succeed.
func TestCtrlCShowsPendingRequests(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	waits := fmt.Sprintf("import os, time; open(%q, 'w').close()\n        while not os.path.exists(%q): time.sleep(0.01)", in("began"), in("end"))
	s := takeSeat(t, writeFiles(t, map[string]string{"m/1/model.py": fmt.Sprintf(modelThatStops, waits)}))
	s.Await("serving 1 model", startLimit)
	answer := s.askBeside()
	testkit.Eventually(t, startLimit, func() bool { _, err := os.Stat(in("began")); return err == nil })
	s.Type("\x03")
	s.Await("waiting up to 30 s for 1 request to finish; press Ctrl-C again to stop at once\n", startLimit)
	if err := os.WriteFile(in("end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, answer, http.StatusOK, `"data":[1]`)
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}

// TestCtrlCSaysThatModelsFinalize types Ctrl-C while a model is slow to finalize. The terminal must
// show the wait. The server must exit when the model finishes or after a second Ctrl-C.
func TestCtrlCSaysThatModelsFinalize(t *testing.T) {
	for name, again := range map[string]bool{"the model ends": false, "Ctrl-C again": true} {
		t.Run(name, func(t *testing.T) {
			end := filepath.Join(t.TempDir(), "end")
			slow := fmt.Sprintf(modelThatAnswers, "1") + fmt.Sprintf("\n    def finalize(self):\n        import os, time\n        while not os.path.exists(%q): time.sleep(0.01)\n", end)
			s := takeSeat(t, writeFiles(t, map[string]string{"slow/1/model.py": slow, "quick/1/model.py": fmt.Sprintf(modelThatAnswers, "1")}))
			s.Await("serving 2 models", startLimit)
			s.Type("\x03")
			s.Await("slow to finalize; press Ctrl-C again to stop at once\n", startLimit)
			want := 0
			if again {
				s.Type("\x03")
				want = 1
			} else if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if status := s.Wait(startLimit); status != want {
				t.Errorf("got status %d, want %d", status, want)
			}
		})
	}
}

// TestEmptyFolderAtATerminal checks that the terminal shows how to create a model if the folder has
// none.
func TestEmptyFolderAtATerminal(t *testing.T) {
	folder := t.TempDir()
	s := takeSeat(t, folder)
	s.Await("create one with nereid new model NAME --directory "+folder, startLimit)
	s.Type("\x03")
	s.Wait(startLimit)
}

// line matches each line of the log. table matches the lines of a startup table.
var (
	line  = regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.-]+:\d+\] `)
	table = regexp.MustCompile(`^(\+-|\| )`)
)

// TestPlainLinesStayTritons checks that `nereid serve` in a pipe and a server without a command on
// a terminal log in Triton's format.
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
		for one := range strings.Lines(output) {
			// A terminal echoes Ctrl-C at the current output position.
			if one = strings.TrimPrefix(one, "^C"); strings.TrimSpace(one) != "" && !line.MatchString(one) && !table.MatchString(one) {
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
		command := exec.Command(binary, append([]string{"--model-repository=" + repository, fmt.Sprintf("--http-port=%d", testkit.Port(t))}, plain...)...)
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

// ask sends a request to the model m and returns its reply.
func (s *seat) ask() (status int, body string, err error) {
	return s.askModel("m")
}

// answers waits until the model m responds with a number.
func (s *seat) answers(t *testing.T, number string) {
	t.Helper()
	s.modelAnswers(t, "m", number)
}

// save writes a file as editors do, by renaming a new file over it.
func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new~", path); err != nil {
		t.Fatal(err)
	}
}

// TestDevReloadsSavedFiles changes a model, a module that it imports and its config, breaks them
// and repairs them. Each change must be loaded, and no request may fail meanwhile.
func TestDevReloadsSavedFiles(t *testing.T) {
	testkit.Story(t)
	imports := strings.Replace(fmt.Sprintf(modelThatAnswers, "number.N"), "import numpy", "from . import number\nimport numpy", 1)
	repository := writeFiles(t, map[string]string{"m/1/model.py": imports, "m/1/number.py": "N = 1"})
	in := func(name string) string { return filepath.Join(repository, "m", name) }
	s := takeSeat(t, repository, "--dev")
	s.Await("serving 1 model", startLimit)
	s.answers(t, "1")
	asking, asked := make(chan struct{}), make(chan string, 1)
	go func() {
		for {
			select {
			case <-asking:
				asked <- ""
				return
			default:
			}
			if status, body, err := s.ask(); err != nil || status != http.StatusOK {
				asked <- fmt.Sprintf("got status %d, %q and error %v, want 200 throughout", status, body, err)
				return
			}
		}
	}()

	save(t, in("1/number.py"), "N = 2") // of the same size, possibly within the same second
	s.answers(t, "2")
	save(t, in("1/number.py"), "N = nothing")
	s.Await("NameError: name 'nothing' is not defined", startLimit)
	s.Await("model 'm' continues with the previous version", startLimit)
	s.answers(t, "2")
	if status, body := s.post(t, "/v2/repository/index"); status != http.StatusOK || !strings.Contains(body, `"state":"READY"`) || !strings.Contains(body, "NameError") {
		t.Errorf("index: got status %d and %q, want READY with the reason why the last load has failed", status, body)
	}
	save(t, in("config.pbtxt"), "nonsense {")
	s.Await("config.pbtxt", startLimit)
	s.Await("model 'm' continues with the previous version", startLimit)
	save(t, in("1/number.py"), "N = 3")
	save(t, in("config.pbtxt"), "parameters { key: \"x\" value { string_value: \"y\" } }")
	s.answers(t, "3")
	if _, body := s.post(t, "/v2/repository/index"); strings.Contains(body, "NameError") || strings.Contains(body, "nonsense") {
		t.Errorf("index: got %q, want no reason behind a load that went well", body)
	}
	save(t, in("2/model.py"), fmt.Sprintf(modelThatAnswers, "4"))
	s.answers(t, "4")
	close(asking)
	if wrong := <-asked; wrong != "" {
		t.Error(wrong)
	}
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}

// TestDevOvertakesLoadsThatHang repeatedly saves a model whose load never ends. Each save must
// replace the hanging load. After several saves of the same file, the load itself could be the
// writer: a save must then be held back with a message, and the next one loaded.
func TestDevOvertakesLoadsThatHang(t *testing.T) {
	testkit.Story(t)
	repository := writeFiles(t, map[string]string{"m/1/model.py": fmt.Sprintf(modelThatAnswers, "1")})
	path, begun := filepath.Join(repository, "m", "1", "model.py"), filepath.Join(t.TempDir(), "begun")
	s := takeSeat(t, repository, "--dev")
	s.Await("serving 1 model", startLimit)
	s.answers(t, "1")
	hang := func(number int) {
		save(t, path, fmt.Sprintf("import pathlib, time\npathlib.Path('%s%d').touch()\ntime.sleep(3600)\n", begun, number))
	}
	for number := range 3 {
		hang(number)
		if !testkit.Within(startLimit, func() bool { _, err := os.Stat(begun + strconv.Itoa(number)); return err == nil }) {
			t.Fatalf("save %d is not loaded", number)
		}
	}
	hang(3)
	s.Await("If you have changed it and do not want to wait, save it again", startLimit)
	save(t, path, fmt.Sprintf(modelThatAnswers, "2"))
	s.answers(t, "2")
	if _, err := os.Stat(begun + "3"); err == nil {
		t.Error("a save that was held back has been loaded")
	}
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}

func (s *seat) post(t *testing.T, path string) (status int, body string) {
	t.Helper()
	response, err := http.Post(s.address(path), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

const modelThatStops = `
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
        answer = 1
        %s
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([answer], np.int32))]) for _ in requests]
`

// deskAnswer is the reply to a request that waits for a debugger.
type deskAnswer struct {
	status int
	body   string
	err    error
}

func (s *seat) askBeside() <-chan deskAnswer {
	answer := make(chan deskAnswer, 1)
	go func() {
		status, body, err := s.ask()
		answer <- deskAnswer{status, body, err}
	}()
	return answer
}

func wantAnswer(t *testing.T, from <-chan deskAnswer, status int, text string) {
	t.Helper()
	select {
	case got := <-from:
		if got.err != nil || got.status != status || !strings.Contains(got.body, text) {
			t.Errorf("got status %d, %q and error %v, want %d and %q", got.status, got.body, got.err, status, text)
		}
	case <-time.After(startLimit):
		t.Fatal("the request is not answered")
	}
}

// TestBreakpointsHaveTheTerminal uses the debugger of a model in which two requests stop at once.
// It changes the model's output, saves the file meanwhile, quits the debugger, and kills the stub
// at its prompt. The terminal must work each time.
func TestBreakpointsHaveTheTerminal(t *testing.T) {
	testkit.Story(t)
	for _, stop := range []string{"breakpoint()", "import pdb; pdb.set_trace()"} {
		t.Run(stop, func(t *testing.T) {
			repository := writeFiles(t, map[string]string{
				"m/1/model.py": fmt.Sprintf(modelThatStops, stop), "m/config.pbtxt": "instance_group { count: 2 kind: KIND_CPU }",
			})
			s := takeSeat(t, repository, "--dev", "--backend-config=python,execute-timeout-seconds=1")
			s.Await("serving 1 model", startLimit)
			// Any user may bind an abstract socket name first, which must not block debuggers.
			taken, err := net.Listen("unix", fmt.Sprintf("@nereid-terminal-%d", s.Process().Pid))
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			first, second := s.askBeside(), s.askBeside()
			s.Await("(Pdb) ", startLimit)
			s.Type("p 'answer', answer + 10\n")
			s.Await("('answer', 11)\n(Pdb) ", startLimit)
			s.Type("n\n")
			s.Await("(Pdb) ", startLimit)
			s.Type("answer = 7\n")
			s.Await("(Pdb) ", startLimit)
			save(t, filepath.Join(repository, "m", "1", "model.py"), fmt.Sprintf(modelThatStops, "pass"))
			s.Await("model 'm' has changed: ", startLimit)
			s.Type("c\n")
			s.Await("(Pdb) ", startLimit) // the breakpoint of the other request
			s.Type("answer = 7\n")
			s.Await("(Pdb) ", startLimit)
			s.Type("c\n")
			wantAnswer(t, first, http.StatusOK, `"data":[7]`)
			wantAnswer(t, second, http.StatusOK, `"data":[7]`)
			s.answers(t, "1") // loaded from the file saved meanwhile
			s.Await("✓ m 1", startLimit)

			save(t, filepath.Join(repository, "m", "1", "model.py"), fmt.Sprintf(modelThatStops, stop))
			s.Await("✓ m 1", startLimit)
			left := s.askBeside()
			s.Await("(Pdb) ", startLimit)
			s.Type("q\n")
			wantAnswer(t, left, http.StatusInternalServerError, "BdbQuit")
			lost := s.askBeside()
			s.Await("(Pdb) ", startLimit)
			s.Type("import os; os.kill(os.getpid(), 9)\n")
			wantAnswer(t, lost, http.StatusInternalServerError, "")
			s.Await("the server has taken the terminal back", startLimit)
			s.Type("\x03")
			if status := s.Wait(startLimit); status != 0 {
				t.Errorf("got status %d after Ctrl-C, want 0", status)
			}
		})
	}
}

// TestBreakpointWithoutATerminal checks that a breakpoint without --dev, or with --dev but without
// a terminal, fails the request with advice.
func TestBreakpointWithoutATerminal(t *testing.T) {
	testkit.Story(t)
	repository := writeFiles(t, map[string]string{"m/1/model.py": fmt.Sprintf(modelThatStops, "breakpoint()")})
	s := takeSeat(t, repository)
	s.Await("serving 1 model", startLimit)
	wantAnswer(t, s.askBeside(), http.StatusInternalServerError, "nereid serve DIR --dev")
	s.Type("\x03")
	s.Wait(startLimit)

	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	ports := testkit.Ports(t, 1)
	command := exec.Command(binary, "serve", repository, "--dev", "--backend-config=python,python-executable="+testkit.Python(t).Path,
		fmt.Sprintf("--http-port=%d", ports[0]), "--allow-grpc=false", "--allow-metrics=false")
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	var output testkit.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	}()
	piped := &seat{http: ports[0]}
	if !testkit.Within(startLimit, func() bool { _, _, err := piped.ask(); return err == nil }) {
		t.Fatalf("the server does not answer:\n%s", output.String())
	}
	wantAnswer(t, piped.askBeside(), http.StatusInternalServerError, "the server was started without a terminal")
}
