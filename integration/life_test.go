package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// busyModel runs a statement when its input is negative, and creates a file named after its
// instance before that.
func busyModel(statement string) string {
	return misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        self.directory = os.path.join(args["model_repository"], args["model_instance_name"])

    def execute(self, requests):
        if is_bad(requests):
            open(self.directory, "w").close()
            ` + strings.ReplaceAll(statement, "\n", "\n            ") + `
        return answer(requests)

    def finalize(self):
        print("finalized", flush=True)
`
}

// TestKilledServerLeavesNothing checks that no process and no shared memory survives a killed
// server, whatever the models are doing.
func TestKilledServerLeavesNothing(t *testing.T) {
	python := testkit.Python(t).Path
	for _, flags := range [][]string{
		nil,
		{"--backend-config=python,stub-template=off"},
		{"--backend-config=python,shm-region-prefix-name=" + regionPrefix},
	} {
		t.Run(strings.Join(append([]string{"flags"}, flags...), " "), func(t *testing.T) {
			files := map[string]string{}
			for name, statement := range map[string]string{
				"sleeps":    "time.sleep(600)",
				"holds_gil": "ctypes.PyDLL(None).usleep(600 * 1000000)",
				"stopped":   "os.kill(os.getpid(), signal.SIGSTOP)",
				"forks":     "subprocess.Popen(['sleep', '600'])\nsubprocess.run(['sleep', '600'])",
				"idle":      "pass",
			} {
				files[name+"/config.pbtxt"] = oneFloat
				files[name+"/1/model.py"] = busyModel(statement)
			}
			root := writeFiles(t, files)
			s := start(t, python, root, flags...)
			for _, name := range []string{"sleeps", "holds_gil", "stopped", "forks"} {
				go func() { // the server dies before it replies
					_, _, _ = s.try("POST", "/v2/models/"+name+"/infer", nil, fmt.Appendf(nil, inferBody, -1))
				}()
				s.until(name, func() bool {
					_, err := os.Stat(fmt.Sprintf("%s/%s/%s_0", root, name, name))
					return err == nil
				})
			}
			processes := s.descendants()
			if len(processes) < 5 {
				t.Fatalf("%d processes below the server, want at least the stubs of 5 models", len(processes))
			}
			_ = s.cmd.Process.Kill()
			s.wait(startLimit)
			s.gone(processes)
			if n := sharedMemoryNames(t); n != 0 {
				t.Errorf("%d names are left in /dev/shm", n)
			}
		})
	}
}

func TestShutdownFinishesRequests(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"slow/config.pbtxt": oneFloat,
		"slow/1/model.py":   busyModel("while not os.path.exists(self.directory + '.go'):\n    time.sleep(0.01)"),
	})
	s := start(t, testkit.Python(t).Path, root)
	answered := make(chan int, 1) // receives the status once
	go func() {
		status, _, _ := s.try("POST", "/v2/models/slow/infer", nil, fmt.Appendf(nil, inferBody, -1))
		answered <- status
	}()
	marker := root + "/slow/slow_0"
	s.until("executing", func() bool { _, err := os.Stat(marker); return err == nil })
	processes := s.descendants()
	_ = s.cmd.Process.Signal(unix.SIGINT)
	s.until("draining", func() bool { return strings.Contains(s.log.String(), "Signal (2) received.") })
	if err := os.WriteFile(marker+".go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the request in flight was answered %d, want 200", status)
	}
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	s.gone(processes)
	if !s.prints("finalized") {
		t.Error("finalize did not run, or what it printed is lost")
	}
}

func TestShutdownEndsInTime(t *testing.T) {
	testkit.Story(t)
	root := writeFiles(t, map[string]string{
		"stuck/config.pbtxt": oneFloat, "stuck/1/model.py": busyModel("time.sleep(600)"),
		"idle/config.pbtxt": oneFloat, "idle/1/model.py": busyModel("pass"),
	})
	s := start(t, testkit.Python(t).Path, root, "--exit-timeout-secs=4")
	go func() { _, _, _ = s.try("POST", "/v2/models/stuck/infer", nil, fmt.Appendf(nil, inferBody, -1)) }()
	s.until("executing", func() bool { _, err := os.Stat(root + "/stuck/stuck_0"); return err == nil })
	processes := s.descendants()
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	begin := time.Now()
	if status := s.wait(startLimit); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	// On an idle machine it takes hardly more than 4 s.
	if took := time.Since(begin); took > 4*time.Second+slack {
		t.Errorf("the end took %s, want 4 s", took)
	}
	s.gone(processes)
	if !s.prints("finalized") {
		t.Error("the idle model did not finalize")
	}
	if want := "unloading 'stuck' version 1: its stubs were killed: the exit timeout ran out"; !s.prints(want) {
		t.Errorf("the log does not say %q", want)
	}
	if want := "failed to stop server: Internal: Exit timeout expired. Exiting immediately."; !strings.Contains(s.log.String(), want) &&
		!strings.Contains(s.log.String(), strings.Replace(want, "Internal: ", "Internal - ", 1)) {
		t.Errorf("the log does not say %q", want)
	}
}

// TestSecondSignalEndsAtOnce checks that the server waits for nothing after a second signal:
// neither for a model that executes forever nor for a client that does not read its response.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"stuck/config.pbtxt": oneFloat, "stuck/1/model.py": busyModel("time.sleep(600)"),
		"big/config.pbtxt": strings.Replace(oneFloat, `"OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ]`, `"OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ]`, 1),
		"big/1/model.py": misbehavingHead + `
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros(16 << 20, np.float32))]) for r in requests]
`,
	})
	s := start(t, testkit.Python(t).Path, root, "--exit-timeout-secs=600")
	go func() { _, _, _ = s.try("POST", "/v2/models/stuck/infer", nil, fmt.Appendf(nil, inferBody, -1)) }()
	s.until("executing", func() bool { _, err := os.Stat(root + "/stuck/stuck_0"); return err == nil })
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.http))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := fmt.Sprintf(strings.Replace(inferBody, `]}]}`, `]}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`, 1), 1)
	fmt.Fprintf(c, "POST /v2/models/big/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if n, err := c.Read(make([]byte, 12)); n == 0 || err != nil { // the client reads only this part
		t.Fatalf("the answer begins with %d bytes, %v", n, err)
	}
	processes := s.descendants()
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	s.until("draining", func() bool { return strings.Contains(s.log.String(), "Signal (15) received.") })
	// Signals in quick succession count as one.
	testkit.Within(slack, func() bool {
		_ = s.cmd.Process.Signal(unix.SIGTERM)
		return len(s.ended) > 0
	})
	if status := s.wait(slack); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	s.gone(processes)
}

// TestShutdownWithIdleConnections checks that an idle connection does not delay the shutdown.
func TestShutdownWithIdleConnections(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")}), "--exit-timeout-secs=600")
	for _, port := range []int{s.http, s.grpc} {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestRepositoryThatIsNotThere starts a server without its repository. With --exit-on-error=false
// it must stay up like Triton, neither live nor ready.
func TestRepositoryThatIsNotThere(t *testing.T) {
	there := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")})
	missing := filepath.Join(there, "nowhere")
	for _, repository := range []string{missing, missing + " --model-repository=" + there} {
		line := strings.Fields(repository)
		flags := append(line[1:], "--model-control-mode=explicit")
		s := launch(t, testkit.Python(t).Path, line[0], flags...)
		if status := s.wait(startLimit); status != 1 || !s.prints("error: creating server: Internal - failed to stat file "+missing) {
			t.Errorf("with --exit-on-error the exit status is %d, want 1", status)
		}
		s = launch(t, testkit.Python(t).Path, line[0], append(flags, "--exit-on-error=false")...)
		s.until("there", func() bool {
			_, _, err := s.try("GET", "/v2/health/live", nil, nil)
			return err == nil
		})
		const notReady = `{"error":"Server not ready"}`
		for path, want := range map[string]string{
			"GET /v2/health/live": "400 ", "GET /v2/health/ready": "400 ", "GET /v2/models/m/ready": "503 " + notReady,
			"GET /v2/models/m": "503 " + notReady, "GET /v2/models/stats": "503 " + notReady, "POST /v2/repository/index": "503 " + notReady,
			"POST /v2/repository/models/m/load": "503 " + notReady, "POST /v2/repository/models/m/unload": "503 " + notReady,
		} {
			method, path, _ := strings.Cut(path, " ")
			status, body := s.request(method, path, "")
			if got := fmt.Sprint(status, " ", body); got != want {
				t.Errorf("%s %s: got %s, want %s", method, path, got, want)
			}
		}
		if status, body := s.infer("m", 1); status != http.StatusServiceUnavailable || body != notReady {
			t.Errorf("a request was answered %d %s", status, body)
		}
		if status, _ := s.request("GET", "/v2", ""); status != http.StatusOK {
			t.Errorf("the server's metadata: status %d", status)
		}
		if want := "Internal: failed to stat file " + missing; !s.prints(want) {
			t.Errorf("the log does not say %q", want)
		}
		s.stop()
	}
}

func TestFailedModelEndsTheStart(t *testing.T) {
	s := launch(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"good/config.pbtxt": oneFloat, "good/1/model.py": executing("pass"),
		"bad/config.pbtxt": oneFloat, "bad/1/model.py": "raise ValueError('no')\n",
	}))
	if status := s.wait(startLimit); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	for _, want := range []string{
		"error: creating server: Internal - failed to load all models",
		"| bad   | 1       | UNAVAILABLE: Internal: ValueError: no",
		"| good  | 1       | READY",
		"failed to load 'bad' version 1: Internal: ValueError: no",
	} {
		if !s.prints(want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
}

// TestNamedModelsEndTheStart checks that startup fails with the reason if a model in --load-model
// fails to load.
func TestNamedModelsEndTheStart(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"good/config.pbtxt": oneFloat, "good/1/model.py": executing("pass"),
		"bad/config.pbtxt": oneFloat, "bad/1/model.py": "raise ValueError('no')\n",
		"worse/config.pbtxt": oneFloat, "worse/1/model.py": "raise TypeError('never')\n",
	})
	for _, test := range []struct {
		models []string
		want   []string
	}{
		{[]string{"good", "bad"}, []string{"Invalid argument - load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: ValueError: no"}},
		{[]string{"worse", "nosuch", "bad", "worse"}, []string{
			"Invalid argument - load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: ValueError: no",
			"\nload failed for model 'worse': version 1 is at UNAVAILABLE state: Internal: TypeError: never",
		}},
		{[]string{"nosuch", "good"}, []string{"Internal - failed to load all models"}},
		{[]string{"*"}, []string{"Internal - failed to load all models"}},
	} {
		args := []string{"--model-control-mode=explicit"}
		for _, name := range test.models {
			args = append(args, "--load-model="+name)
		}
		s := launch(t, testkit.Python(t).Path, repository, args...)
		if status := s.wait(startLimit); status != 1 {
			t.Errorf("%v: exit status %d, want 1", test.models, status)
		}
		_, end, _ := strings.Cut(s.log.String(), "error: creating server: ")
		for i, want := range test.want {
			if at := strings.Index(end, want); at < 0 || i == 0 && at > 0 {
				t.Errorf("%v: the end is\n%s\nwant %q in it", test.models, end, want)
			}
		}
		if n := strings.Count(end, "load failed"); n > len(test.want) {
			t.Errorf("%v: the end has %d reasons:\n%s", test.models, n, end)
		}
	}
}

func TestPortInUseEndsTheStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	root := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")})
	for flag, name := range map[string]string{"--http-port": "HTTP", "--grpc-port": "GRPC", "--metrics-port": "Metrics"} {
		s := launch(t, testkit.Python(t).Path, root, fmt.Sprintf("%s=%d", flag, taken))
		if status := s.wait(startLimit); status != 1 {
			t.Errorf("%s: exit status %d, want 1", flag, status)
		}
		if want := fmt.Sprintf("failed to start %s service: Unavailable - Socket '127.0.0.1:%d' already in use ", name, taken); !s.prints(want) {
			t.Errorf("%s: the output does not contain %q:\n%s", flag, want, s.log)
		}
	}
}

// TestCrashLoopLeavesOthersServing checks that a model in a crash loop is not ready and rejects
// requests, while other models keep serving.
func TestCrashLoopLeavesOthersServing(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"good/config.pbtxt": oneFloat, "good/1/model.py": executing("pass"),
		"loops/config.pbtxt": oneFloat, "loops/1/model.py": misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        mark = os.path.join(args["model_repository"], "broken")
        if os.path.exists(mark):
            os._exit(1)
        self.mark = mark

    def execute(self, requests):
        open(self.mark, "w").close()
        os._exit(1)
`,
	}))
	if status, body := s.infer("loops", 1); status != http.StatusInternalServerError {
		t.Errorf("status %d: %s", status, body)
	}
	s.until("not ready", func() bool {
		status, _ := s.request("GET", "/v2/models/loops/ready", "")
		return status == http.StatusBadRequest
	})
	if status, _ := s.request("GET", "/v2/health/ready", ""); status != http.StatusBadRequest {
		t.Errorf("the server is ready with status %d, want 400", status)
	}
	if status, _ := s.request("GET", "/v2/health/live", ""); status != http.StatusOK {
		t.Errorf("the server is not live: status %d", status)
	}
	if status, body := s.infer("good", 1); status != http.StatusOK {
		t.Errorf("the good model: status %d: %s", status, body)
	}
	// Requests must fail instead of waiting forever.
	s.until("hopeless", func() bool {
		status, _ := s.infer("loops", 1)
		return status != http.StatusOK
	})
}

// TestCrashLoopInExecute serves a model that starts but dies with every request. The server must
// restart it at growing intervals. Between them the model must not be ready, and requests must be
// rejected at once.
func TestCrashLoopInExecute(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"dies/config.pbtxt": oneFloat,
		"dies/1/model.py": misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        self.mark = os.path.join(args["model_repository"], "executed")

    def execute(self, requests):
        with open(self.mark, "a") as mark:
            mark.write("x" * len(requests))
        os._exit(1)
`,
	})
	s := start(t, testkit.Python(t).Path, root)
	executed := func() int {
		marks, err := os.ReadFile(root + "/dies/executed")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return len(marks)
	}
	refused := func() bool {
		status, body := s.infer("dies", 1)
		if status != http.StatusInternalServerError || !strings.Contains(body, "Stub process 'dies_0' is not healthy.") {
			t.Fatalf("status %d: %s", status, body)
		}
		status, _ = s.request("GET", "/v2/models/dies/ready", "")
		return status == http.StatusBadRequest
	}
	// The pause after the eighth loss is longer than a second, which is enough for a few requests.
	var begin time.Time // the time before the last loss
	for executed() < 8 {
		s.until("tried again", func() bool {
			status, _ := s.request("GET", "/v2/models/dies/ready", "")
			return status == http.StatusOK
		})
		begin = time.Now()
		refused()
	}
	for range 5 {
		if !refused() && time.Since(begin) < time.Second {
			t.Error("the model is ready while its stub is not there")
		}
	}
	if n := executed(); n != 8 && time.Since(begin) < time.Second {
		t.Errorf("%d requests were executed in the pause, want none", n-8)
	}
	if !s.prints("process keeps failing: requests are rejected until it starts") {
		t.Error("the log does not say that there is no hope")
	}
}

// TestStubKilledWhileIdle checks that a stub killed while idle is restarted. Until then a request
// may get an error that says so.
func TestStubKilledWhileIdle(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")}))
	for i := range 5 {
		for _, pid := range s.stubs() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if status, body := s.infer("m", i); status != http.StatusOK && !strings.Contains(body, "Stub process 'm_0' is not healthy.") {
			t.Errorf("status %d: %s", status, body)
		}
		s.until("healed", func() bool {
			status, _ := s.infer("m", i)
			return status == http.StatusOK
		})
	}
}
