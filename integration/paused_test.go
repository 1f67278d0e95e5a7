package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// pausing is a model that waits for a file in the method that is its name, and creates files when
// it starts to wait and when it returns.
const pausing = misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        self.place = os.path.join(args["model_repository"], args["model_name"])
        self.reach("initializes")

    def execute(self, requests):
        self.reach("executes")
        return answer(requests)

    def finalize(self):
        self.reach("finalizes")

    def reach(self, method):
        if not self.place.endswith(method):
            return
        with open(self.place + ".new", "w") as f:
            f.write(str(os.getpid()))
        os.rename(self.place + ".new", self.place + ".waits")
        while not os.path.exists(self.place + ".go"):
            time.sleep(0.01)
        open(self.place + ".returns", "w").close()
`

// TestAPauseOfAServerThatExitsKillsNoModel stops a server and its model, whose finalize runs, for
// longer than the exit timeout. finalize must end, and the exit counts as one in time.
func TestAPauseOfAServerThatExitsKillsNoModel(t *testing.T) {
	const limit = 3 * time.Second
	root := writeFiles(t, map[string]string{"finalizes/config.pbtxt": oneFloat, "finalizes/1/model.py": pausing})
	place := func(what string) string { return filepath.Join(root, "finalizes", "finalizes."+what) }
	has := func(what string) bool { _, err := os.Stat(place(what)); return err == nil }
	s := start(t, testkit.Python(t).Path, root, fmt.Sprintf("--exit-timeout-secs=%d", limit/time.Second))
	if err := s.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.until("waiting in finalize", func() bool { return has("waits") })
	text, err := os.ReadFile(place("waits"))
	if err != nil {
		t.Fatal(err)
	}
	model, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	signal := func(what unix.Signal) {
		for _, pid := range []int{s.cmd.Process.Pid, model} {
			if err := unix.Kill(pid, what); err != nil {
				t.Error(err)
			}
		}
	}
	began := time.Now()
	signal(unix.SIGSTOP)
	testkit.Eventually(t, startLimit, func() bool { return time.Since(began) > limit+limit/4 })
	if err := os.WriteFile(place("go"), nil, 0o644); err != nil {
		t.Error(err)
	}
	signal(unix.SIGCONT)
	if status := s.wait(startLimit); status != 0 || !has("returns") {
		t.Errorf("exit status %d, finalize has returned: %v; want 0 and its end", status, has("returns"))
	}
}

// TestAPauseOfTheServerKillsNoModel stops a server for longer than its models' timeouts: alone, as
// in a debugger, and together with its models, as on a suspended machine or in a frozen container.
// The pause must not count against the timeouts.
func TestAPauseOfTheServerKillsNoModel(t *testing.T) {
	const limit = 3 * time.Second
	for _, all := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "with its models"}[all], func(t *testing.T) {
			t.Parallel()
			models := []string{"executes", "initializes", "finalizes"}
			files := map[string]string{}
			for _, m := range models {
				files[m+"/config.pbtxt"], files[m+"/1/model.py"] = oneFloat, pausing
			}
			root := writeFiles(t, files)
			place := func(model, what string) string { return filepath.Join(root, model, model+"."+what) }
			has := func(what string) func() bool {
				return func() bool {
					found := 0
					for _, m := range models {
						if _, err := os.Stat(place(m, what)); err == nil {
							found++
						}
					}
					return found == len(models)
				}
			}
			s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=executes", "--load-model=finalizes",
				fmt.Sprintf("--backend-config=python,execute-timeout-seconds=%d", limit/time.Second),
				fmt.Sprintf("--backend-config=python,initialize-timeout-seconds=%d", limit/time.Second),
				fmt.Sprintf("--backend-config=python,finalize-timeout-seconds=%d", limit/time.Second))
			answers := make(chan string, 2)
			ask := func(path, body string) {
				status, body, err := s.try("POST", path, nil, []byte(body))
				answers <- fmt.Sprint(status, " ", err, " ", body)
			}
			go ask("/v2/models/executes/infer", fmt.Sprintf(inferBody, 1))
			go ask("/v2/repository/models/initializes/load", "")
			if status, body := s.request("POST", "/v2/repository/models/finalizes/unload", ""); status != http.StatusOK {
				t.Fatalf("unload: status %d: %s", status, body)
			}
			s.until("waiting in its models", has("waits"))

			stopped := []int{s.cmd.Process.Pid}
			for _, m := range models {
				text, err := os.ReadFile(place(m, "waits"))
				if err != nil {
					t.Fatal(err)
				}
				pid, err := strconv.Atoi(string(text))
				if err != nil {
					t.Fatal(err)
				}
				if all {
					stopped = append(stopped, pid)
				}
			}
			signal := func(what unix.Signal) {
				for _, pid := range stopped {
					if err := unix.Kill(pid, what); err != nil {
						t.Error(err)
					}
				}
			}
			letGo := func() {
				for _, m := range models {
					if err := os.WriteFile(place(m, "go"), nil, 0o644); err != nil {
						t.Error(err)
					}
				}
			}
			began := time.Now()
			signal(unix.SIGSTOP)
			if !all {
				letGo()
				testkit.Eventually(t, startLimit, has("returns"))
			}
			testkit.Eventually(t, startLimit, func() bool { return time.Since(began) > limit+limit/4 })
			signal(unix.SIGCONT)
			if all {
				letGo()
			}
			for range cap(answers) {
				if answer := <-answers; !strings.HasPrefix(answer, "200 <nil>") {
					t.Errorf("got %s", answer)
				}
			}
			if !s.prints("successfully unloaded 'finalizes' version 1") {
				t.Error("the model is not unloaded")
			}
			for _, never := range []string{"did not return", "process lost", "within 3s"} {
				if strings.Contains(s.log.String(), never) {
					t.Errorf("the log has %q", never)
				}
			}
		})
	}
}
