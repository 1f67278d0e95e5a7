package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
)

// buildPlugin builds the backend of testdata/plugins/many, with the race detector if the tests use
// it.
var buildPlugin = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs("../bin/plugin-under-test")
	if err != nil {
		return "", err
	}
	arguments := []string{"build", "-o", binary}
	if raceEnabled {
		arguments = append(arguments, "-race")
	}
	output, err := exec.Command("go", append(arguments, "./testdata/plugins/many")...).CombinedOutput()
	if err != nil {
		return "", &buildError{string(output), err}
	}
	return binary, nil
})

// plugin installs the backend at the given paths, by a copy and a rename.
func plugin(t *testing.T, path ...string) {
	t.Helper()
	binary, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range path {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		fresh := filepath.Join(t.TempDir(), "fresh")
		if err := os.WriteFile(fresh, content, 0o755); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
		if err := os.Rename(fresh, p); err != nil {
			t.Fatal(err)
		}
	}
}

// manyConfig returns the config of a model of the backend "many".
func manyConfig(does string, more ...string) string {
	return "backend: \"many\"\ninput [ { name: \"INPUT0\" data_type: TYPE_INT32 dims: [ 1 ] } ]\noutput [ { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [ 1 ] } ]\n" +
		"parameters { key: \"does\" value { string_value: \"" + does + "\" } }\n" + strings.Join(more, "\n")
}

const oneNumber = `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[%d]}]}`

// tryNumber sends a number to a model and returns the status and the body, or the error. Any
// goroutine may call it.
func (s *runningServer) tryNumber(model string, value int) string {
	status, body, err := s.try("POST", "/v2/models/"+model+"/infer", nil, fmt.Appendf(nil, oneNumber, value))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(status, " ", body)
}

// number sends a number to a model, and returns the status and the number in the reply, or its
// error.
func (s *runningServer) number(model string, value int) (status int, answer int, failure string) {
	s.t.Helper()
	status, body := s.request("POST", "/v2/models/"+model+"/infer", fmt.Sprintf(oneNumber, value))
	if status != http.StatusOK {
		return status, 0, errorOf(s.t, body)
	}
	var reply struct{ Outputs []struct{ Data []int } }
	if err := json.Unmarshal([]byte(body), &reply); err != nil || len(reply.Outputs) != 1 || len(reply.Outputs[0].Data) != 1 {
		s.t.Fatalf("%s: got %s", model, body)
	}
	return status, reply.Outputs[0].Data[0], ""
}

// wantNumber sends a number to a model and checks the reply.
func (s *runningServer) wantNumber(model string, value, want int) {
	s.t.Helper()
	if status, answer, failure := s.number(model, value); status != http.StatusOK || answer != want {
		s.t.Errorf("%s of %d: got status %d, %d %s, want %d", model, value, status, answer, failure, want)
	}
}

// pythonTwice returns twice its input. pythonCalls returns the output of the model in its parameter
// "callee" plus 1000.
const (
	pythonTwice = `
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy() * 2)]) for r in requests]
`
	pythonCalls = `
import json
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.callee = json.loads(args["model_config"])["parameters"]["callee"]["string_value"]

    def execute(self, requests):
        answers = []
        for r in requests:
            asked = pb_utils.InferenceRequest(model_name=self.callee, inputs=r.inputs(), requested_output_names=["OUTPUT0"]).exec()
            if asked.has_error():
                answers.append(pb_utils.InferenceResponse(error=asked.error()))
                continue
            out = pb_utils.get_output_tensor_by_name(asked, "OUTPUT0").as_numpy() + np.int32(1000)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", out)]))
        return answers
`
	oneInt = "input [ { name: \"INPUT0\" data_type: TYPE_INT32 dims: [ 1 ] } ]\noutput [ { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [ 1 ] } ]\n"
)

func callee(name string) string {
	return "parameters { key: \"callee\" value { string_value: \"" + name + "\" } }\n"
}

// steps returns the config of an ensemble that passes its input through models.
func steps(models ...string) string {
	var b strings.Builder
	b.WriteString("platform: \"ensemble\"\n" + oneInt + "ensemble_scheduling { step [\n")
	for i, model := range models {
		from, to := fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i+1)
		if i == 0 {
			from = "INPUT0"
		}
		comma := ","
		if i == len(models)-1 {
			to, comma = "OUTPUT0", ""
		}
		fmt.Fprintf(&b, "{ model_name: %q model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }%s\n", model, from, to, comma)
	}
	b.WriteString("] }\n")
	return b.String()
}

// TestPluginsServeAsPythonDoes checks how models of plugins are found, configured, placed and
// called: by clients, Python models and each other, in ensembles, sequences and batches, with a
// cache, and with many responses.
func TestPluginsServeAsPythonDoes(t *testing.T) {
	backends := t.TempDir()
	plugin(t, filepath.Join(backends, "many", "nereid_many"))
	root := writeFiles(t, map[string]string{
		"completed/config.pbtxt": `backend: "many"`, "completed/1/none": "",
		"ofversion/config.pbtxt": `backend: "near"`, "ofversion/1/none": "",
		"ofmodel/config.pbtxt": "backend: \"near\"\nruntime: \"other\"", "ofmodel/1/none": "",
		"settings/config.pbtxt": manyConfig("settings"), "settings/1/none": "",
		"groups/config.pbtxt": manyConfig("where", `instance_group [ { count: 2 kind: KIND_CPU host_policy: "mine" }, { kind: KIND_MODEL } ]`), "groups/1/none": "",
		"sum/config.pbtxt": manyConfig("sum", "sequence_batching { max_sequence_idle_microseconds: 60000000 oldest { max_candidate_sequences: 4 } }"), "sum/1/none": "",
		"repeat/config.pbtxt": manyConfig("repeat", "model_transaction_policy { decoupled: true }"), "repeat/1/none": "",
		"batch/config.pbtxt": manyConfig("batch", "max_batch_size: 8", "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000000 }"), "batch/1/none": "",
		"cached/config.pbtxt": manyConfig("pid", "response_cache { enable: true }"), "cached/1/none": "",
		"twice/config.pbtxt": "backend: \"python\"\n" + oneInt, "twice/1/model.py": pythonTwice,
		"gopy/config.pbtxt": manyConfig("call", callee("twice")), "gopy/1/none": "",
		"gogo/config.pbtxt": manyConfig("call", callee("gopy")), "gogo/1/none": "",
		"pygo/config.pbtxt": "backend: \"python\"\n" + oneInt + callee("gogo"), "pygo/1/model.py": pythonCalls,
		"ensemble/config.pbtxt": steps("completed", "twice", "completed", "pygo"), "ensemble/1/none": "",
	})
	plugin(t, filepath.Join(root, "ofversion", "1", "nereid_near"), filepath.Join(root, "ofmodel", "other"))
	s := start(t, testkit.Python(t).Path, root, "--backend-directory="+backends, "--backend-config=own=of all", "--backend-config=many,own=of many",
		"--host-policy=mine,cpu-cores=0-0", "--cache-config=local,size=1048576")
	for model, want := range map[string]int{"completed": 42, "ofversion": 42, "ofmodel": 42, "settings": 42, "groups": 42, "gopy": 8200, "gogo": 820_000, "pygo": 821_000} {
		s.wantNumber(model, 41, want)
	}
	// (1 + 1) · 2 + 1 is 5. From that twice makes 10, gopy 1,000, gogo 100,000, and pygo 101,000.
	s.wantNumber("ensemble", 1, 101_000)
	if _, first, _ := s.number("cached", 1); first == 0 {
		t.Error("the model with a cache has not answered")
	} else {
		s.wantNumber("cached", 1, first)
	}
	if hits := s.countsOf("cached"); !strings.Contains(hits, "cache_hit 1,") {
		t.Errorf("got statistics %s, want one hit of the cache", hits)
	}
	for _, want := range []string{
		"settings of many: own=of many batch=4 {\"cmdline\":{\"auto-complete-config\":\"true\",",
		"groups_0_0 is CPU 0, policy {\"mine\":{\"cpu-cores\":\"0-0\"}}, profiles []\n",
		"groups_0_1 is CPU 0, policy {\"mine\":", "groups_1_0 is MODEL 0, policy {\"model\":{}}, profiles []\n",
		"| many ", filepath.Join(backends, "many", "nereid_many") + " ", filepath.Join(root, "ofversion", "1", "nereid_near") + " ", filepath.Join(root, "ofmodel", "other") + " ",
		`{"cmdline":{"auto-complete-config":"true","backend-directory":"` + backends + `","min-compute-capability":"0.000000","own":"of many","default-max-batch-size":"4"}}`,
	} {
		if !s.prints(want) {
			t.Errorf("the server has not printed %q", want)
		}
	}
	if strings.Contains(s.log.String(), "is not known") || strings.Contains(s.log.String(), "there is no backend") {
		t.Error("the server has warned of a setting that is a plugin's own")
	}
	s.runClient("plugins.py")
	// Each instance has one process. All must be told to exit and close their backend.
	before := strings.Count(s.log.String(), "many is closed\n")
	s.stop()
	if closed := strings.Count(s.log.String(), "many is closed\n") - before; closed < 10 {
		t.Errorf("%d processes said that their backend was closed, want those of 10 instances at least", closed)
	}
}

// TestPluginsArePlacedOnDevices checks that instances of plugins are placed on devices on a machine
// with two GPUs.
func TestPluginsArePlacedOnDevices(t *testing.T) {
	backends := t.TempDir()
	plugin(t, filepath.Join(backends, "many", "nereid_many"))
	s := launchOnFakes(t, writeFiles(t, map[string]string{
		"none/config.pbtxt": manyConfig("where"), "none/1/none": "",
		"gpu/config.pbtxt": manyConfig("where", "instance_group [ { kind: KIND_GPU gpus: [ 1 ] secondary_devices [ { kind: KIND_NVDLA device_id: 3 } ] } ]"), "gpu/1/none": "",
	}), nil, "--backend-directory="+backends, "--host-policy=gpu_1,cpu-cores=0-0")
	s.waitReady()
	s.wantNumber("gpu", 1, 2)
	for _, want := range []string{
		"gpu_0_0 is GPU 1, policy {\"gpu_1\":{\"cpu-cores\":\"0-0\"}}, profiles []\n",
		"TRITONBACKEND_ModelInstanceInitialize: none_0 (GPU device 0)", "TRITONBACKEND_ModelInstanceInitialize: none_0 (GPU device 1)",
	} {
		if !s.prints(want) {
			t.Errorf("the server has not printed %q", want)
		}
	}
}

// TestPluginsThatCannotBeLoaded checks that the load error names the reason for each faulty plugin,
// and that working models are not affected.
func TestPluginsThatCannotBeLoaded(t *testing.T) {
	script := func(line string) string { return "#!/bin/sh\necho '" + line + "'\nexec sleep 600\n" }
	backends := writeFiles(t, map[string]string{
		"old/nereid_old": script(ipc.PluginLine(ipc.PluginVersion - 1)), "new/nereid_new": script(ipc.PluginLine(ipc.PluginVersion + 1)),
		"other/nereid_other": script("usage: other"), "silent/nereid_silent": "#!/bin/sh\nexec sleep 600\n", "ends/nereid_ends": "#!/bin/sh\necho why it ends >&2\nexit 3\n",
		"mode/nereid_mode": "#!/bin/sh\n",
	})
	models := map[string]string{
		"many": "", "old": "was built for version 2 of the protocol of plugins, this server has version 3: rebuild it with the SDK of this server",
		"new":   "was built for version 4 of the protocol of plugins, this server has version 3: build it with the SDK of this server, or use a newer server",
		"other": `printed "usage: other" instead of its handshake line`, "silent": "did not make its handshake within 1s (setting start-timeout-seconds)",
		"ends": "exited with code 3 before its handshake", "mode": "cannot be used, the server's log has the reason",
		"New": "New panicked", "Attributes": "Attributes panicked", "NewModel": "NewModel panicked", "NewInstance": "NewInstance panicked",
	}
	files := make(map[string]string)
	arguments := []string{"--backend-directory=" + backends, "--model-control-mode=explicit", "--backend-config=silent,start-timeout-seconds=1"}
	for name := range models {
		files[name+"/config.pbtxt"], files[name+"/1/none"] = strings.Replace(manyConfig(""), `"many"`, `"`+name+`"`, 1), ""
		path := filepath.Join(backends, name, "nereid_"+name)
		if _, err := os.Stat(path); err == nil && name != "mode" {
			if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // it is a program
				t.Fatal(err)
			}
		} else if name != "mode" {
			plugin(t, path)
			arguments = append(arguments, "--backend-config="+name+",panic="+name)
		}
	}
	files["refused/config.pbtxt"], files["refused/1/none"] = manyConfig("refuse"), ""
	models["refused"] = "model 'refused' is refused by its backend"
	s := start(t, "", writeFiles(t, files), arguments...)
	s.mustLoad("many")
	before := s.holds()
	for name, want := range models {
		if name == "many" {
			continue
		}
		if status, body := s.load(name); status != http.StatusBadRequest || !strings.Contains(errorOf(t, body), want) {
			t.Errorf("load of %s: got status %d, %s, want 400 and %q", name, status, body, want)
		}
	}
	s.wantNumber("many", 1, 2)
	for _, want := range []string{`last lines of the process:\nwhy it ends`, backends + "/mode/nereid_mode' is not executable (-rw-r--r--)"} {
		if !s.prints(want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	var after held
	if !testkit.Within(startLimit, func() bool {
		after = s.holds()
		return after.files <= before.files && after.mappings <= before.mappings && after.processes <= before.processes
	}) {
		t.Errorf("the server holds %v, before it held %v", after, before)
	}
}

// pluginFault is one way in which a plugin's model can fail a request.
type pluginFault struct {
	does   string
	want   string // part of the client's error; "": the request succeeds
	answer string // part of the reply
	logged []string
	// waits: the client gets the reply when the model is unloaded.
	waits bool
	lives bool // the process continues
}

const faultOf = "backend 'many', model '%s', instance '%s': "

var pluginFaults = []pluginFault{
	{does: "panic", want: "Execute panicked", logged: []string{"as the request says", "Execute panicked"}, lives: true},
	{does: "nil", want: "Execute panicked", logged: []string{"invalid memory address or nil pointer dereference"}, lives: true},
	{does: "error", want: "not today", lives: true},
	{does: "end the goroutine", want: "Execute ended its goroutine", logged: []string{faultOf + "Execute ended its goroutine"}, lives: true},
	{does: "close descriptors", want: "the process of backend 'many' for instance '%s' has ended unexpectedly"},
	{does: "leave a child", want: "the process of backend 'many' for instance '%s' has ended unexpectedly", logged: []string{"process exited with code 4"}},
	{does: "eat memory", want: "the process of backend 'many' for instance '%s' has ended unexpectedly", logged: []string{"process exited with code 2"}},
	{does: "print", lives: true},
	{does: "huge output", want: "pool size to 4398046511104 bytes", lives: true},
	{does: "deep output", want: "output 'OUTPUT0' has 300 dimensions, at most 64 are allowed", lives: true},
	{does: "float parameter", answer: `"parameters":{"share":0.25}`, lives: true},
	{does: "use it later", logged: []string{"used later: 0 <nil>", faultOf, "the request was released twice"}, lives: true},
	{does: "panic beside", want: "the process of backend 'many' for instance '%s' has ended unexpectedly", logged: []string{"panic: in a goroutine of its own", "process exited with code 2"}},
	{does: "exit", want: "the process of backend 'many' for instance '%s' has ended unexpectedly", logged: []string{"last words", "process exited with code 3"}},
	{does: "hang", want: "the process of backend 'many' for instance '%s' has ended unexpectedly", logged: []string{"execute did not return within 2s"}},
	{does: "send twice", logged: []string{faultOf, "a response was sent that had been sent, or discarded, before"}, lives: true},
	{does: "release twice", logged: []string{faultOf, "the request was released twice"}, lives: true},
	{does: "forget", want: "model '%m' has not answered the request", logged: []string{faultOf, "the request had no final response"}, waits: true, lives: true},
	{does: "forget the release", logged: []string{faultOf, "the request had not been released"}, waits: true, lives: true},
	{does: "answer after Close", want: "model '%m' has not answered the request", logged: []string{faultOf, "the request had no final response", "too late: "}, waits: true, lives: true},
}

// TestPluginsThatMisbehave checks that each fault fails only one request. The client must get a
// clear error, the log must name backend, model and instance, the next request must succeed, and
// nothing may be left over.
func TestPluginsThatMisbehave(t *testing.T) {
	testkit.Story(t)
	backends := t.TempDir()
	plugin(t, filepath.Join(backends, "many", "nereid_many"), filepath.Join(backends, "hanging", "nereid_hanging"))
	files := make(map[string]string)
	for i, f := range pluginFaults {
		config := manyConfig(f.does)
		if f.does == "hang" { // this fault alone needs a short timeout
			config = strings.Replace(config, `"many"`, `"hanging"`, 1)
		}
		files[fmt.Sprintf("m%d/config.pbtxt", i)], files[fmt.Sprintf("m%d/1/none", i)] = config, ""
	}
	s := start(t, "", writeFiles(t, files), "--backend-directory="+backends, "--model-control-mode=explicit", "--load-model=*", "--backend-config=hanging,execute-timeout-seconds=2",
		"--backend-config=many,unload-timeout-seconds=3")
	for i, f := range pluginFaults {
		model := fmt.Sprintf("m%d", i)
		instance := model + "_0"
		say := func(text string) string {
			text = strings.ReplaceAll(text, "%m", model)
			if f.does == "hang" {
				text = strings.ReplaceAll(text, "'many'", "'hanging'")
			}
			switch strings.Count(text, "%s") {
			case 1:
				text = fmt.Sprintf(text, instance)
			case 2:
				text = fmt.Sprintf(text, model, instance)
			}
			return text
		}
		t.Run(f.does, func(t *testing.T) {
			outer := s.t
			s.t = t
			defer func() { s.t = outer }()
			s.wantNumber(model, 1, 2)
			before := s.holds()
			answer := make(chan string, 1)
			go func() { answer <- s.tryNumber(model, 13) }()
			if f.waits {
				if f.want == "" { // the client has its reply, but the model keeps the request
					answer <- <-answer
				}
				if !s.prints(model + " keeps a request\n") {
					t.Fatal("the model does not execute the request")
				}
				s.wantNumber(model, 1, 2) // another request meanwhile
				if status, body := s.request("POST", "/v2/repository/models/"+model+"/unload", ""); status != http.StatusOK {
					t.Fatalf("unload: status %d: %s", status, body)
				}
				s.until("unloaded", func() bool { return s.index()[model].State == "UNAVAILABLE" && s.index()[model].Reason == "unloaded" })
			}
			switch got := <-answer; {
			case f.want == "" && !strings.HasPrefix(got, "200 "):
				t.Errorf("got %s, want an answer", got)
			case !strings.Contains(got, f.answer):
				t.Errorf("got %s, want %s in it", got, f.answer)
			case f.want != "" && (strings.HasPrefix(got, "200 ") || !strings.Contains(got, say(f.want))):
				t.Errorf("got %s, want the error %q", got, say(f.want))
			}
			for _, want := range f.logged {
				if !s.prints(say(want)) {
					t.Errorf("the log does not have %q", say(want))
				}
			}
			if f.waits {
				s.mustLoad(model)
			}
			s.until("serving again", func() bool {
				status, _, err := s.try("GET", "/v2/models/"+model+"/ready", nil, nil)
				return err == nil && status == http.StatusOK
			})
			s.wantNumber(model, 1, 2)
			var after held
			if !testkit.Within(startLimit, func() bool {
				after = s.holds()
				return after.files <= before.files && after.mappings <= before.mappings && after.processes <= before.processes
			}) {
				t.Errorf("the server holds %v, before it held %v", after, before)
			}
		})
	}
	lost := 0
	for _, f := range pluginFaults {
		if !f.lives {
			lost++
		}
	}
	if n := strings.Count(s.log.String(), "process lost, restarting"); n != lost {
		t.Errorf("%d processes were lost, want %d", n, lost)
	}
	s.until("rid of all requests", func() bool { return s.figure(`nereid_memory_bytes{kind="blocks"}`) < 1<<20 })
}

// TestPluginsThatWriteNonsenseIntoConfigs loads models that complete their configs with invalid
// values. Each load must fail with a clear error or the model must reject requests, and nothing may
// be left over.
func TestPluginsThatWriteNonsenseIntoConfigs(t *testing.T) {
	backends := t.TempDir()
	plugin(t, filepath.Join(backends, "many", "nereid_many"))
	wants := map[string]string{ // "": the model loads, as on Triton
		"negative dims": "model input 'INPUT0' dimension must be integer >= 1, or -1", "no dims": "model output 'OUTPUT0' must specify 'dims'", "huge dims": "",
		"no name": "model output must specify 'name'", "no UTF-8": "the config of SetConfig cannot be written", "no type": "", "no batch": "'max_batch_size' must be non-negative value",
		"equal names": "", "a long name": "bytes as JSON, want at most 1024000", "many outputs": "bytes as JSON, want at most 1024000",
	}
	files := map[string]string{"good/config.pbtxt": manyConfig(""), "good/1/none": ""}
	for does := range wants {
		name := strings.ReplaceAll(does, " ", "_")
		files[name+"/config.pbtxt"], files[name+"/1/none"] = manyConfig(does), ""
	}
	s := start(t, "", writeFiles(t, files), "--backend-directory="+backends, "--model-control-mode=explicit", "--load-model=good")
	before := s.holds()
	for does, want := range wants {
		model := strings.ReplaceAll(does, " ", "_")
		switch status, body := s.load(model); {
		case want != "" && (status != http.StatusBadRequest || !strings.Contains(errorOf(t, body), want)):
			t.Errorf("%s: got status %d, %.300s, want 400 and %q", does, status, body, want)
		case want == "" && status != http.StatusOK:
			t.Errorf("%s: got status %d, %.300s, want it loaded", does, status, body)
		case want == "":
			if got := s.tryNumber(model, 1); !strings.HasPrefix(got, "400 ") && !strings.HasPrefix(got, "200 ") {
				t.Errorf("%s: got %.300s", does, got)
			}
			if status, body := s.request("POST", "/v2/repository/models/"+model+"/unload", ""); status != http.StatusOK {
				t.Errorf("unload %s: status %d: %s", model, status, body)
			}
		}
		s.wantNumber("good", 1, 2)
	}
	var after held
	if !testkit.Within(startLimit, func() bool {
		after = s.holds()
		return after.files <= before.files && after.mappings <= before.mappings && after.processes <= before.processes
	}) {
		t.Errorf("the server holds %v, before it held %v", after, before)
	}
}
