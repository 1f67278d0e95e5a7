package integration

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestFlagsSetTheLimitsOfModels exceeds each limit that a flag sets for models. The excess
// must be rejected or dropped, and the server must continue.
func TestFlagsSetTheLimitsOfModels(t *testing.T) {
	marks := t.TempDir()
	began := time.Now()
	goes, loads, loaded, silent := filepath.Join(marks, "goes"), filepath.Join(marks, "loads"), filepath.Join(marks, "loaded"), filepath.Join(marks, "silent")
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"waits/config.pbtxt":  oneFloat,
		"waits/1/model.py":    executing(fmt.Sprintf("while not os.path.exists(%q):\n    time.sleep(0.01)", goes)),
		"prints/config.pbtxt": oneFloat, "prints/1/model.py": executing(`sys.stdout.write("a line that is cut\n" + "more\n" * 9)`),
		"loads/config.pbtxt": oneFloat, "loads/1/model.py": executing(`pb_utils.load_model("x", "{}", {"file:1/a": b"", "file:1/b": b""})`),
		"brings/config.pbtxt": oneFloat, "brings/1/model.py": executing(`pb_utils.load_model("x", "{}", {"file:1/a": bytes(2000)})`),
		"measures/config.pbtxt": oneFloat,
		"measures/1/model.py":   executing(`pb_utils.MetricFamily(name="f", description="d" * 2000, kind=pb_utils.MetricFamily.GAUGE)`),
		"asks/config.pbtxt":     oneFloat,
		"asks/1/model.py": executing(fmt.Sprintf(`
import threading
loading = threading.Thread(target=pb_utils.load_model, args=("slow",))
loading.start()
while not os.path.exists(%q):
    time.sleep(0.01)
try:
    pb_utils.is_model_ready("slow")
finally:
    open(%q, "w").close()
    loading.join()`, loads, loaded)),
		"slow/config.pbtxt": oneFloat,
		"slow/1/model.py": misbehavingHead + fmt.Sprintf("class TritonPythonModel:\n    def initialize(self, args):\n        open(%q, \"w\").close()\n"+
			"        while not os.path.exists(%q):\n            time.sleep(0.01)\n", loads, loaded) + "\n    def execute(self, requests):\n        return answer(requests)\n",
		"chats/config.pbtxt": oneFloat,
		"chats/1/model.py":   executing(fmt.Sprintf("while not os.path.exists(%q):\n    print(\"chat\", flush=True)\n    time.sleep(0.001)", silent)),
	}), "--model-control-mode=explicit", "--load-model=waits", "--load-model=prints", "--load-model=loads", "--load-model=brings",
		"--load-model=measures", "--load-model=asks", "--load-model=chats", "--model-max-calls=1", "--model-max-queued-requests=2", "--model-max-instances=2",
		"--model-max-requested-instances=3", "--model-max-load-files=3", "--model-max-printed-lines=4", "--model-printed-lines-per-second=1",
		"--model-max-printed-line-size=11", "--model-max-call-files=1", "--model-max-call-size=1000", "--metrics-config=custom_bytes_per_model=1000")

	refused := func(what string, status int, text, want string) {
		t.Helper()
		if status == http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: got status %d and %s, want %q", what, status, text, want)
		}
	}
	asked := func(model, want string) {
		t.Helper()
		status, text := s.infer(model, -1)
		refused(model, status, text, want)
		if status, text := s.infer(model, 1); status != http.StatusOK {
			t.Errorf("%s afterwards: status %d: %s", model, status, text)
		}
	}
	asked("loads", "it has more than 1 files")
	asked("brings", "calls of 0 bytes are under way, at most 1 of 1000 are allowed")
	asked("asks", "1 calls of 42 bytes are under way, at most 1 of 1000 are allowed")
	asked("measures", "more would be beyond the limit of 1000")

	// One request executes, another may be queued in the stub, and two wait in the queue. The rest
	// must be rejected.
	var asking sync.WaitGroup
	var full atomic.Int32
	for range 6 {
		asking.Go(func() {
			switch status, text := s.infer("waits", -1); {
			case status == http.StatusServiceUnavailable && strings.Contains(text, "Exceeds maximum queue size"):
				full.Add(1)
			case status != http.StatusOK:
				t.Errorf("a request within the limit: status %d: %s", status, text)
			}
		})
	}
	s.until("the queue is full", func() bool { return full.Load() >= 2 })
	if err := os.WriteFile(goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	if n := full.Load(); n > 3 {
		t.Errorf("%d of six requests were refused, want 3 at most", n)
	}

	const instances = "/v2/repository/models/waits/instances"
	status, text := s.request("POST", instances, `{"count":4}`)
	refused("four instances", status, text, "want a whole number from 1 to 3")
	status, text = s.request("POST", instances, `{"count":3}`)
	refused("three instances", status, text, "asks for 3 instances, a model has 2 at most")
	if status, text = s.request("POST", instances, `{"count":2}`); status != http.StatusOK {
		t.Errorf("two instances: status %d: %s", status, text)
	}

	file := base64.StdEncoding.EncodeToString([]byte("x"))
	status, text = s.request("POST", "/v2/repository/models/new/load",
		`{"parameters":{"config":"{}","file:1/a":"`+file+`","file:1/b":"`+file+`","file:2/c":"`+file+`"}}`)
	refused("a model of five files and directories", status, text, "failed to load 'new'")
	if !s.prints("the files of the request need more than 3 files and directories") {
		t.Errorf("the log does not say why:\n%s", s.log)
	}

	chatted := make(chan struct{})
	asking.Go(func() {
		defer close(chatted)
		if status, text := s.infer("chats", -1); status != http.StatusOK {
			t.Errorf("status %d: %s", status, text)
		}
	})
	s.until("lines are printed after the first four", func() bool { return strings.Count(s.log.String(), "chat\n") >= 6 })
	if err := os.WriteFile(silent, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-chatted
	// The limit is four lines, and one more for each second since the stub started.
	if n, most := strings.Count(s.log.String(), "chat\n"), 5+time.Since(began).Seconds(); float64(n) > most {
		t.Errorf("%d lines are printed, want at most %.0f", n, most)
	}

	if status, text := s.infer("prints", -1); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
	if status, text := s.request("POST", "/v2/repository/models/prints/unload", ""); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
	s.until("lines are dropped", func() bool { return s.prints("output of the model was dropped") })
	most := min(8, 5+time.Since(began).Seconds()) // twice the burst, however long the stub was silent before
	if text := s.log.String(); !s.prints("a printed line was too long and was truncated") || strings.Contains(text, "a line that is cut\n") || float64(strings.Count(text, "more\n")) > most {
		t.Errorf("lines are not cut, or not dropped:\n%s", s.log)
	}
}
