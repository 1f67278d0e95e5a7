package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// stuckEnd is a model that does not end without force.
type stuckEnd struct {
	name          string
	config, model string
	asked         string // the model that gets the requests; default: name
	more          string // added to each request after its inputs
	quiet         bool   // gets no requests, because its finalize hangs
}

// stuckBLS calls another model, which does not respond.
const stuckBLS = `pb_utils.InferenceRequest(model_name="%s", inputs=[requests[0].inputs()[0]], requested_output_names=["OUTPUT0"]).exec()
raise RuntimeError("the call came back")`

// stuckEnds returns models that must be ended by force, one for each way of hanging.
func stuckEnds() []stuckEnd {
	ensemble := strings.Replace(oneFloat, `backend: "python"`, `platform: "ensemble"`, 1) + `ensemble_scheduling { step {
  model_name: "part" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } }`
	return []stuckEnd{
		{name: "executes", model: busyModel("time.sleep(600)")},
		{name: "holds_gil", model: busyModel("ctypes.PyDLL(None).usleep(600 * 1000000)")},
		{name: "stopped", model: busyModel("os.kill(os.getpid(), signal.SIGSTOP)")},
		{name: "sender", model: busyModel("self.senders = [r.get_response_sender() for r in requests]\nreturn [None] * len(requests)")},
		{name: "sequences", config: `max_batch_size: 1 sequence_batching { max_sequence_idle_microseconds: 600000000 }`,
			model: busyModel("time.sleep(600)"), more: `,"parameters":{"sequence_id":%d,"sequence_start":true}`},
		{name: "batches", config: `max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 1000 }`, model: busyModel("time.sleep(600)")},
		{name: "finalizes", model: strings.Replace(busyModel("pass"), `print("finalized", flush=True)`, "time.sleep(600)", 1), quiet: true},
		{name: "part", model: busyModel("time.sleep(600)"), asked: "whole"},
		{name: "whole", config: ensemble},
		{name: "callee", model: busyModel("time.sleep(600)"), asked: "asking"},
		{name: "asking", model: busyModel(fmt.Sprintf(stuckBLS, "callee"))},
		{name: "waits", model: busyModel(fmt.Sprintf(stuckBLS, "goes_on"))},
		{name: "goes_on", model: busyModel("time.sleep(600)"), asked: "waits"},
	}
}

// TestUnloadEndsByForce unloads models that do not end. Each unload must be acknowledged at once.
// After the unload timeout the stubs must be gone, the requests must have failed, and the models
// must load again.
func TestUnloadEndsByForce(t *testing.T) {
	files := map[string]string{}
	ends := stuckEnds()
	for _, m := range ends {
		config := m.config
		if !strings.Contains(config, "platform") {
			config = oneFloat + config
		}
		files[m.name+"/config.pbtxt"], files[m.name+"/1/empty"] = config, ""
		if m.model != "" {
			files[m.name+"/1/model.py"] = m.model
		}
	}
	root := writeFiles(t, files)
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=*", "--backend-config=python,unload-timeout-seconds=1")
	idle := len(s.stubs())

	type answer struct {
		model, text string
		status      int
	}
	answers := make(chan answer, 4*len(ends)) // one from each request
	asked := 0
	ask := func(m stuckEnd, number int) {
		to, shape, more := m.name, "[1]", m.more
		if m.asked != "" {
			to = m.asked
		}
		if strings.Contains(m.config, "max_batch_size") {
			shape = "[1,1]"
		}
		if more != "" {
			more = fmt.Sprintf(more, number)
		}
		body := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":%s,"data":[-1]}]%s}`, shape, more)
		asked++
		go func() {
			status, text, err := s.try("POST", "/v2/models/"+to+"/infer", nil, []byte(body))
			if err != nil {
				text = err.Error()
			}
			answers <- answer{m.name, text, status}
		}()
	}
	for _, m := range ends {
		if m.quiet || m.model == "" || m.name == "asking" || m.name == "waits" {
			continue // their requests are sent to the models that they call or that call them
		}
		ask(m, 1)
		s.until("stuck in "+m.name, func() bool { return exists(filepath.Join(root, m.name, m.name+"_0")) })
		ask(m, 2) // waits behind the first
	}
	processes := s.stubs()
	for _, m := range ends {
		begin := time.Now()
		if status, body := s.request("POST", "/v2/repository/models/"+m.name+"/unload", ""); status != http.StatusOK {
			t.Errorf("unload %s: %d %s", m.name, status, body)
		}
		if took := time.Since(begin); took > slack {
			t.Errorf("unload %s was answered after %s", m.name, took)
		}
	}
	late := time.After(startLimit)
	for range asked {
		select {
		case a := <-answers:
			if a.status < 400 || a.text == "" {
				t.Errorf("a request inside %s was answered %d %s", a.model, a.status, a.text)
			}
		case <-late:
			t.Fatal("requests inside were not answered")
		}
	}
	s.gone(processes)
	for _, m := range ends {
		s.until("without "+m.name, func() bool { return s.index()[m.name].State == "UNAVAILABLE" })
		if !m.quiet && m.model != "" && !s.prints(fmt.Sprintf("unloading '%s' version 1: its stubs were killed: the unload timeout of 1s ran out", m.name)) {
			t.Errorf("the log does not say that %s was ended by force", m.name)
		}
	}
	if n := len(s.stubs()); n != 0 {
		t.Errorf("%d stubs are left of %d", n, idle)
	}
	for _, m := range ends {
		if status, body := s.request("POST", "/v2/repository/models/"+m.name+"/load", ""); status != http.StatusOK {
			t.Errorf("load %s again: %d %s", m.name, status, body)
		}
	}
	for _, name := range []string{"executes", "stopped", "sender", "whole", "asking"} {
		if status, body := s.infer(name, 7); status != http.StatusOK || !strings.Contains(body, `"data":[7`) {
			t.Errorf("%s after its return: %d %s", name, status, body)
		}
	}
}

// hangsInInitialize hangs in initialize while the file "MODEL.hang" exists beside its directory,
// and creates "MODEL.hangs" then. The directory itself does not change.
const hangsInInitialize = misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        directory = args["model_repository"]
        if os.path.exists(directory + ".hang"):
            open(directory + ".hangs", "w").close()
            while True:
                time.sleep(600)

    def execute(self, requests):
        return answer(requests)
`

// TestLoadThatHangsIsGivenUp checks that an unload, or a load of changed files, waits for a hanging
// load no longer than the unload timeout, and that a shutdown does not wait for it.
func TestLoadThatHangsIsGivenUp(t *testing.T) {
	names := []string{"unloaded", "replaced", "grown", "exits"}
	files := map[string]string{}
	for _, name := range names {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"], files[name+".hang"] = oneFloat, hangsInInitialize, ""
	}
	delete(files, "grown.hang")
	// This model has a warm-up that takes hours.
	files["warm/config.pbtxt"] = oneFloat + `model_warmup { name: "s" count: 1000000 batch_size: 1
  inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }`
	files["warm/1/model.py"] = strings.Replace(hangsInInitialize, "        return answer", `        open(self.directory + ".hangs", "w").close()
        time.sleep(0.01)
        return answer`, 1)
	files["warm/1/model.py"] = strings.Replace(files["warm/1/model.py"], `directory = args["model_repository"]`, `directory = self.directory = args["model_repository"]`, 1)
	root := writeFiles(t, files)
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=grown",
		"--backend-config=python,unload-timeout-seconds=1", "--exit-timeout-secs=600")
	post := func(model, what, body string) <-chan string {
		answered := make(chan string, 1) // receives the status and the text once
		go func() {
			path := "/v2/repository/models/" + model + "/" + what
			if what == "instances" {
				path = "/v2/repository/models/" + model + "/instances"
			}
			status, text, err := s.try("POST", path, nil, []byte(body))
			answered <- fmt.Sprint(status, " ", text, " ", err)
		}()
		return answered
	}
	hangs := func(model string) string { return filepath.Join(root, model+".hangs") }
	first := map[string]<-chan string{}
	if err := os.WriteFile(filepath.Join(root, "grown.hang"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "warm") {
		if name == "grown" {
			first[name] = post(name, "instances", `{"count":2}`)
		} else {
			first[name] = post(name, "load", "")
		}
		s.until("hanging in "+name, func() bool { return exists(hangs(name)) })
	}
	processes := s.stubs()

	// A repetition of the same load must not abandon the first one.
	again := post("exits", "load", "")
	if err := os.Remove(filepath.Join(root, "replaced.hang")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "replaced", "1", "more.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	second := map[string]<-chan string{
		"unloaded": post("unloaded", "unload", ""), "replaced": post("replaced", "load", ""),
		"grown": post("grown", "unload", ""), "warm": post("warm", "unload", ""),
	}
	for name, answered := range second {
		if got := <-answered; !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: the second call was answered %s", name, got)
		}
		got := <-first[name]
		if !strings.Contains(got, "current load operation is out-dated.") {
			t.Errorf("%s: the load that hung was answered %s", name, got)
		}
	}
	if status, body := s.infer("replaced", 7); status != http.StatusOK {
		t.Errorf("what was loaded instead: %d %s", status, body)
	}
	exiting := s.stubsOf("exits")
	if len(exiting) != 1 || len(first["exits"])+len(again) > 0 {
		t.Errorf("the load that nothing has outdated has ended, %d stubs", len(exiting))
	}
	s.until("rid of those that hung", func() bool {
		left := 0
		for _, pid := range s.stubs() {
			for _, p := range processes {
				if p == pid {
					left++
				}
			}
		}
		return left == 1
	})
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(slack); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	for _, answered := range []<-chan string{first["exits"], again} {
		if got := <-answered; !strings.Contains(got, "Server exiting") {
			t.Errorf("a load that hung when the server ended was answered %s", got)
		}
	}
	s.gone(exiting)
}
