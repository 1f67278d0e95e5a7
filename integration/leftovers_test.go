package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// leavesBehind starts processes outside its process group and writes their pids into files: a
// program in its own session, a daemonized fork of the stub, and a program without environment
// variables.
const leavesBehind = misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        self.directory = args["model_repository"]
        self.note("session", subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
        self.note("scrubbed", subprocess.Popen(["sleep", "600"], start_new_session=True, env={}).pid)
        between = os.fork()
        if between == 0:
            os.setsid()
            if os.fork() == 0:
                self.note("daemon", os.getpid())
                time.sleep(600)
            os._exit(0)
        os.waitpid(between, 0)

    def note(self, what, pid):
        path = self.directory + "." + what
        with open(path + ".new", "w") as f:
            f.write(str(pid))
        os.rename(path + ".new", path)

    def execute(self, requests):
        return answer(requests)
`

// leftovers returns the pids of the processes that leavesBehind has started, by kind.
func leftovers(s *runningServer, root string) map[string]int {
	s.t.Helper()
	pids := map[string]int{}
	for _, what := range []string{"session", "scrubbed", "daemon"} {
		s.until("with a "+what, func() bool {
			text, err := os.ReadFile(filepath.Join(root, "leaves."+what))
			if err != nil {
				return false
			}
			pids[what], err = strconv.Atoi(string(text))
			return err == nil
		})
	}
	return pids
}

func values(m map[string]int) (list []int) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// TestModelsLeaveNothingBehind checks that processes started by a model end with its stub, in any
// session: after an unload, after the stub is killed, after a shutdown, and after the server is
// killed.
func TestModelsLeaveNothingBehind(t *testing.T) {
	testkit.Story(t)
	python := testkit.Python(t).Path
	for _, template := range []string{"on", "off"} {
		t.Run("template "+template, func(t *testing.T) {
			root := writeFiles(t, map[string]string{"leaves/config.pbtxt": oneFloat, "leaves/1/model.py": leavesBehind})
			flags := []string{"--model-control-mode=explicit", "--load-model=*", "--backend-config=python,stub-template=" + template}
			forget := func() {
				for _, what := range []string{"session", "scrubbed", "daemon"} {
					_ = os.Remove(filepath.Join(root, "leaves."+what))
				}
			}
			s := start(t, python, root, flags...)
			first := leftovers(s, root)
			forget()
			if status, body := s.request("POST", "/v2/repository/models/leaves/unload", ""); status != http.StatusOK {
				t.Fatalf("unload: %d %s", status, body)
			}
			s.gone(values(first))

			if status, body := s.request("POST", "/v2/repository/models/leaves/load", ""); status != http.StatusOK {
				t.Fatalf("load: %d %s", status, body)
			}
			second := leftovers(s, root)
			forget()
			for _, pid := range s.stubs() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			// Nothing identifies a process without the environment mark and without its parent.
			_ = unix.Kill(second["scrubbed"], unix.SIGKILL)
			s.gone(values(second))

			third := leftovers(s, root) // those of the restarted stub
			forget()
			s.stop()
			s.gone(values(third))

			s = start(t, python, root, flags...)
			fourth := leftovers(s, root)
			_ = s.cmd.Process.Kill()
			s.wait(startLimit)
			_ = unix.Kill(fourth["scrubbed"], unix.SIGKILL)
			s.gone(values(fourth))
		})
	}
}

// TestSidecarLivesOn checks that the server does not kill a child process that it inherited from
// the program that exec'd it.
func TestSidecarLivesOn(t *testing.T) {
	root := writeFiles(t, map[string]string{"leaves/config.pbtxt": oneFloat, "leaves/1/model.py": leavesBehind})
	note := filepath.Join(root, "sidecar")
	behind := []string{"/bin/sh", "-c", `sleep 600 >/dev/null 2>&1 & echo $! >"$0"; exec "$@"`, note}
	for _, end := range []string{"SIGTERM", "two SIGTERM", "SIGKILL"} {
		t.Run(end, func(t *testing.T) {
			s := launchBehind(t, behind, testkit.Python(t).Path, root)
			s.waitReady()
			text, err := os.ReadFile(note)
			if err != nil {
				t.Fatal(err)
			}
			sidecar, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Kill(sidecar, unix.SIGKILL) }()
			left := leftovers(s, root)
			switch end {
			case "SIGTERM":
				_ = s.cmd.Process.Signal(unix.SIGTERM)
			case "two SIGTERM":
				testkit.Within(slack, func() bool {
					_ = s.cmd.Process.Signal(unix.SIGTERM)
					return len(s.ended) > 0
				})
			default:
				_ = s.cmd.Process.Kill()
				_ = unix.Kill(left["scrubbed"], unix.SIGKILL)
			}
			s.wait(startLimit)
			s.gone(values(left))
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", sidecar)); err != nil || strings.Contains(string(stat), ") Z ") {
				t.Errorf("the sidecar has ended: %s, %v", stat, err)
			}
		})
	}
}
