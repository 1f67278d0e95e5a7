package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// deviceModes are the models of testdata/device_modes.py that the caller calls, by name, with their
// tensors and the rest of their config. Each exists twice: the suffix of its name says whether it
// accepts device tensors (FORCE_CPU_ONLY_INPUT_TENSORS).
var deviceModes = map[string]struct{ acts, inputs, outputs, more string }{
	"plain":   {"plain", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1]", ""},
	"listed":  {"listed", "IN:FP32[-1]", "OUT:FP32[-1] WHERE:INT32[1]", "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 2000 }\n"},
	"stacked": {"stacked", "IN:FP32[-1]", "OUT:FP32[-1] WHERE:INT32[1]", "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 2000 }\n" + setting("BATCH_MODE", "stacked")},
	"states": {"states", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1] STATE_OUT:FP32[2,-1]", `sequence_batching { max_sequence_idle_microseconds: 60000000 oldest { max_candidate_sequences: 8 }
  state [ { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: [ -1, -1 ] } ] }
`},
	"cached":   {"cached", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1] RUNS:INT32[2,1]", "response_cache { enable: true }\n"},
	"warmed":   {"warms", "IN:FP32[-1]", "OUT:FP32[-1] WHERE:INT32[1]", "max_batch_size: 8\n" + warmupSample("s", "batch_size: 1 count: 3", "IN", "FP32", "20000", "zero_data: true") + "instance_group [ { kind: KIND_GPU } ]\n"},
	"thrice":   {"thrice", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1]", "model_transaction_policy { decoupled: true }\n"},
	"endless":  {"endless", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1]", "model_transaction_policy { decoupled: true }\n"},
	"again":    {"again", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1]", "model_transaction_policy { decoupled: true } sequence_batching { iterative_sequence: true }\n"},
	"passes":   {"passes", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1]", "model_transaction_policy { decoupled: true }\n"},
	"raising":  {"raises", "IN:FP32[2,-1]", "OUT:FP32[2,-1]", ""},
	"words":    {"words", "IN:STRING[-1]", "OUT:STRING[-1]", ""},
	"optional": {"optional", "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1] MAYBE:FP32[2,-1]", ""},
	"adds":     {"adds", "IN:FP32[2,-1] MAYBE:FP32[2,-1]?", "OUT:FP32[2,-1] WHERE:INT32[2,1]", ""},
}

// setting returns a parameter for a model's config.
func setting(name, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", name, value)
}

// deviceModeServer launches a server with the deviceModes and a caller, and loads the models in
// load.
func deviceModeServer(t *testing.T, load string, flags ...string) (s *runningServer, state, repository string) {
	source, err := os.ReadFile(filepath.Join("testdata", "device_modes.py"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	oneCPU := "instance_group [ { kind: KIND_CPU } ]\n"
	modelFiles(files, "caller", "CASE:STRING[1]", "RESULT:STRING[1]", oneCPU+setting("ACTS", "caller"), string(source))
	for _, takes := range []string{"yes", "no"} {
		force := setting("FORCE_CPU_ONLY_INPUT_TENSORS", map[string]string{"yes": "no", "no": "yes"}[takes])
		for kind, m := range deviceModes {
			more := m.more + force + setting("ACTS", m.acts)
			if !strings.Contains(more, "instance_group") {
				more += oneCPU
			}
			modelFiles(files, kind+"_"+takes, m.inputs, m.outputs, more, string(source))
		}
		steps := []string{
			"optional_" + takes + "(IN=IN)->OUT=MID,MAYBE=maybe", "plain_" + takes + "(IN=MID)->OUT=OUT,WHERE=WHERE",
			"adds_" + takes + "(IN=MID,MAYBE=maybe)->OUT=SECOND",
		}
		outputs := "OUT:FP32[2,-1] SECOND:FP32[2,-1] WHERE:INT32[2,1]"
		ensembleFiles(files, "ensemble_"+takes, "IN:FP32[2,-1]", outputs, "", steps...)
		ensembleFiles(files, "shown_"+takes, "IN:FP32[2,-1]", outputs+" MID:FP32[2,-1]", "", steps...)
		ensembleFiles(files, "flow_"+takes, "IN:FP32[2,-1]", "OUT:FP32[2,-1] WHERE:INT32[2,1]", "",
			"thrice_"+takes+"(IN=IN)->OUT=mid", "plain_"+takes+"(IN=mid)->OUT=OUT,WHERE=WHERE")
	}
	state, repository = filepath.Join(t.TempDir(), "state"), writeFiles(t, files)
	producer := "NEREID_PRODUCER=" + filepath.Join(testkit.Root(t), "stub", "tests")
	s = launchOnDevices(t, repository, state, []string{producer},
		append(flags, "--allow-gpu-metrics=false", "--cache-config=local,size=8388608", "--model-control-mode=explicit", "--load-model="+load)...)
	s.waitReady()
	return s, state, repository
}

// mode runs a test case in the caller, in a request with an id, and returns its result.
func (s *runningServer) mode(testCase, id string) (status int, result string) {
	s.t.Helper()
	status, text := s.request("POST", "/v2/models/caller/infer",
		fmt.Sprintf(`{"id":%q,"inputs":[{"name":"CASE","datatype":"BYTES","shape":[1],"data":[%q]}]}`, id, testCase))
	var answer struct{ Outputs []struct{ Data []string } }
	if status != http.StatusOK || json.Unmarshal([]byte(text), &answer) != nil || len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != 1 {
		return status, text
	}
	return status, answer.Outputs[0].Data[0]
}

// deviceCases returns the test cases that the caller itself verifies.
func deviceCases() (cases []string) {
	for _, takes := range []string{"yes", "no"} {
		for _, kind := range []string{"plain", "listed", "stacked", "states", "cached", "warmed", "ensemble", "shown"} {
			for _, size := range []string{"none", "small", "large"} {
				cases = append(cases, "calls:"+kind+"_"+takes+":"+size)
			}
		}
		cases = append(cases, "sequence:states_"+takes, "cache:cached_"+takes, "together:listed_"+takes, "together:stacked_"+takes)
		for _, kind := range []string{"thrice", "passes", "again", "flow"} {
			cases = append(cases, "stream:"+kind+"_"+takes, "stream_soon:"+kind+"_"+takes)
		}
		cases = append(cases, "optional:ensemble_"+takes, "optional:shown_"+takes)
		cases = append(cases, "forwards:plain_"+takes, "forwards:listed_"+takes, "given_up:endless_"+takes)
		for _, kind := range []string{"plain", "listed", "stacked", "cached", "ensemble"} {
			for _, where := range []string{"0:large", "1:large", "1:small", "0:none"} {
				cases = append(cases, "prefers:"+kind+"_"+takes+":"+where)
			}
		}
		cases = append(cases, "prefers_stream:thrice_"+takes+":0", "prefers_stream:passes_"+takes+":1", "prefers_given_up:endless_"+takes)
		cases = append(cases, "prefers_words:words_"+takes, "prefers_forked:plain_"+takes)
		cases = append(cases, "cancels:listed_"+takes, "cancels:plain_"+takes, "raises:raising_"+takes)
	}
	return cases
}

// TestTensorsOnDevicesInAllModes calls models of all kinds with device tensors. The caller verifies
// the responses.
func TestTensorsOnDevicesInAllModes(t *testing.T) {
	testkit.Story(t)
	s, state, _ := deviceModeServer(t, "*")
	for range 2 { // in the second round the caller knows which models accept device tensors
		for _, c := range deviceCases() {
			if status, result := s.mode(c, ""); status != http.StatusOK || result != "good" {
				t.Errorf("%s: status %d: %s", c, status, result)
			}
		}
	}
	s.nothingOnDevices(state)
	if text := "tensors on devices that other models hold"; strings.Contains(s.log.String(), text) {
		t.Errorf("a process that ended printed %q, and all requests were answered before", text)
	}
}

// TestOutputsThatCannotBeOnDevices checks BLS requests that prefer outputs on a device. Outputs
// that cannot be moved there must stay where they are, and the log must give the reason.
func TestOutputsThatCannotBeOnDevices(t *testing.T) {
	standInAlone(t, "no call of a real driver fails when a test wants it")
	s, state, _ := deviceModeServer(t, "*")
	const up, across = "cuMemcpyHtoD_v2/1+=700", "cuMemcpyPeer/1+=700"
	for _, c := range []string{
		"prefers_none:stacked_yes:2", "prefers_none:stacked_no:-1", "prefers_none:cached_yes:9223372036854775807",
		"prefers_fails:stacked_yes:" + up + ":cpu", "prefers_fails:cached_no:cuStreamSynchronize/1+=719:cpu",
		"prefers_fails:plain_yes:" + across + ":0", "prefers_fails:cached_yes:cuCtxPushCurrent_v2/1+=201:cpu",
	} {
		if status, result := s.mode(c, ""); status != http.StatusOK || result != "good" {
			t.Errorf("%s: status %d: %s", c, status, result)
		}
	}
	for _, line := range []string{
		"outputs that a BLS request prefers on GPU 2 stay where they are: there is no device 2, but 2",
		"outputs that a BLS request prefers on GPU 1 stay where they are: an illegal memory access was encountered",
	} {
		if n := s.printed(line, 1); n != 1 {
			t.Errorf("the log says %d times %q, want once", n, line)
		}
	}
	s.nothingOnDevices(state)
}

// TestTracedTensorsOfDevices checks that device tensors are recorded correctly in the traces of
// requests.
func TestTracedTensorsOfDevices(t *testing.T) {
	testkit.Story(t)
	path := filepath.Join(t.TempDir(), "trace.json")
	s, state, _ := deviceModeServer(t, "*", "--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS", "--trace-config=rate=1", "--trace-config=triton,file="+path)
	for _, c := range deviceCases() {
		if strings.Contains(c, "_no") {
			continue
		}
		if status, result := s.mode(c, "traced"); status != http.StatusOK || result != "good" {
			t.Errorf("%s: status %d: %s", c, status, result)
		}
	}
	s.notLeaking(state)
	s.stop()
	content, err := os.ReadFile(path)
	var list []traceEntry
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	models, inputs, seen := map[int]string{}, map[int][]string{}, map[string]int{}
	for _, e := range list {
		if e.Model != "" {
			models[e.ID] = e.Model
		}
		if e.Tensor == nil || strings.HasSuffix(e.Tensor.Shape, ",0") {
			continue
		}
		data := strings.Split(e.Tensor.Data, ",")
		model := models[e.ID]
		switch e.Tensor.Name {
		case "IN":
			inputs[e.ID] = data
		case "OUT":
			if model == "states_yes" || model == "words_yes" || strings.HasPrefix(model, "adds") || strings.HasPrefix(model, "ensemble") || strings.HasPrefix(model, "flow") || strings.HasPrefix(model, "shown") {
				break
			}
			if got, want := data[len(data)-1], inputs[e.ID][len(data)-1]; len(data) != len(inputs[e.ID]) || !twice(got, want) {
				t.Errorf("%s: recorded %d outputs that end in %s, of %d inputs that end in %s", model, len(data), got, len(inputs[e.ID]), want)
			}
			seen[model]++
		}
	}
	for kind := range deviceModes {
		if !slices.Contains([]string{"states", "adds", "endless", "words", "flow", "raising"}, kind) && seen[kind+"_yes"] == 0 {
			t.Errorf("%s: no output was recorded (%v)", kind, seen)
		}
	}
}

// TestMemoryOfClientsInAllModes sends tensors in a client's device memory to models of all kinds.
func TestMemoryOfClientsInAllModes(t *testing.T) {
	testkit.Story(t)
	s, state, _ := deviceModeServer(t, "*", "--allow-client-shm=true")
	s.runCUDAScript("device_modes_client.py", state, "", "import")
	s.nothingOnDevices(state)
}

// TestTensorsOfModelsThatEnd unloads, reloads and kills a model while another model holds unread
// device tensors of it. The process must wait for the reads before it exits. If it is killed, the
// reads must fail.
func TestTensorsOfModelsThatEnd(t *testing.T) {
	const model = "listed_yes"
	s, state, repository := deviceModeServer(t, model, "--load-model=caller")
	waits := 0
	for _, ends := range []struct {
		name string
		by   func()
		want string
	}{
		{"unloaded", func() { s.request("POST", "/v2/repository/models/"+model+"/unload", "") }, "good"},
		{"reloaded", func() {
			touch(t, filepath.Join(repository, model, "1", "model.py"))
			s.mustLoad(model)
		}, "good"},
		{"killed", func() { _ = unix.Kill(s.stubsOf(model)[0], unix.SIGKILL) }, strings.Repeat("; Failed to open the cudaIpcHandle. error: invalid argument", 3)[2:]},
	} {
		s.mustLoad(model)
		marks, done := t.TempDir(), make(chan string, 1)
		go func() {
			status, result := s.mode("holds:"+model+":3:"+marks, "")
			done <- fmt.Sprint(status, " ", result)
		}()
		s.comes(marks, "begun")
		pid := s.stubsOf(model)[0]
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ends.by()
		}()
		if ends.want == "good" {
			waits++
			if n := s.printed("waiting for 3 tensors on devices that other models hold", waits); n != waits {
				t.Errorf("%s: its process waited %d times, want %d", ends.name, n, waits)
			}
		} else {
			s.until("rid of the process", func() bool { return unix.Kill(pid, 0) != nil })
		}
		come(t, marks)
		got, want := <-done, "200 "+ends.want
		if realDevice() { // a real driver has several errors for this case
			got = regexp.MustCompile(`error: [^;]*`).ReplaceAllString(got, "error: invalid argument")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", ends.name, got, want)
		}
		<-ended
	}
	// Both models end at once, so neither may wait for tensors that the other holds.
	s.mustLoad(model)
	if _, result := s.mode("keeps:"+model, ""); result != "good" {
		t.Error(result)
	}
	s.nothingOnDevices(state)
}

// TestModelsThatTakeTensorsOnDevicesLater calls a model before it is loaded and before its config
// accepts device tensors. The caller must notice each change.
func TestModelsThatTakeTensorsOnDevicesLater(t *testing.T) {
	s, state, repository := deviceModeServer(t, "caller")
	good := func(testCase string) {
		t.Helper()
		if status, result := s.mode(testCase, ""); status != http.StatusOK || result != "good" {
			t.Errorf("%s: status %d: %s", testCase, status, result)
		}
	}
	if status, result := s.mode("calls:plain_yes:large", ""); status == http.StatusOK {
		t.Errorf("a model that is not loaded: got %s", result)
	}
	s.mustLoad("plain_yes")
	good("calls:plain_yes:large")

	good("impatient")
	s.mustLoad("plain_no")
	good("calls:plain_no:large")
	path := filepath.Join(repository, "plain_no", "config.pbtxt")
	config, err := os.ReadFile(path)
	if err == nil {
		config = bytes.Replace(config, []byte(`string_value: "yes"`), []byte(`string_value: "no"`), 1)
		err = os.WriteFile(path, config, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	touch(t, path)
	s.mustLoad("plain_no")
	good("turned:plain_no:large")
	s.nothingOnDevices(state)
}

// TestStubsKilledInAllModes kills the stubs of lenders and holders of device tensors during calls
// of all kinds. Each request must get a reply, and all calls must work afterwards.
func TestStubsKilledInAllModes(t *testing.T) {
	testkit.Story(t)
	s, state, _ := deviceModeServer(t, "*")
	cases := slices.DeleteFunc(deviceCases(), func(c string) bool { return strings.Contains(c, "_no") })
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for k := range 4 {
		wait.Go(func() {
			for i := k; ; i += 5 {
				select {
				case <-stop:
					return
				default:
					s.mode(cases[i%len(cases)], "") // an error is a reply too
				}
			}
		})
	}
	victims := []string{"plain_yes", "listed_yes", "caller", "thrice_yes", "passes_yes", "states_yes", "adds_yes", "endless_yes"}
	kills := 4
	if testkit.Long() {
		kills = 12 * len(victims)
	}
	for i := range kills {
		victim := victims[i%len(victims)]
		var pids []int
		s.until("finding "+victim, func() bool { pids = s.stubsOf(victim); return len(pids) > 0 })
		_ = unix.Kill(pids[0], unix.SIGKILL)
		s.until("having another "+victim, func() bool { now := s.stubsOf(victim); return len(now) > 0 && now[0] != pids[0] })
	}
	close(stop)
	wait.Wait()
	for _, c := range cases {
		s.until("doing "+c, func() bool {
			status, result := s.mode(c, "")
			if status != http.StatusOK || result != "good" {
				t.Log(c, status, result)
				return false
			}
			return true
		})
	}
	s.nothingOnDevices(state)
}

// twice reports whether got is twice of, plus up to 2 as in the responses of a stream. Both are
// numbers from a trace.
func twice(got, of string) bool {
	a, err := strconv.ParseFloat(got, 64)
	b, other := strconv.ParseFloat(of, 64)
	return err == nil && other == nil && a >= 2*b && a <= 2*b+2
}

// nothingOnDevices unloads all models and checks that no device memory is left.
func (s *runningServer) nothingOnDevices(state string) {
	s.t.Helper()
	s.notLeaking(state)
	var all sync.WaitGroup
	for _, name := range s.loaded() {
		all.Go(func() {
			if status, body := s.request("POST", "/v2/repository/models/"+name+"/unload", ""); status != http.StatusOK {
				s.t.Errorf("unload %s: status %d (%s)", name, status, body)
			}
		})
	}
	all.Wait()
	s.until("rid of all memory of devices", func() bool {
		_, live := fakeState(s.t, state)
		delete(live, "context") // of the copier
		delete(live, "stream")
		for _, n := range live {
			if n != 0 {
				return false
			}
		}
		return !strings.Contains(s.scrape(), "nereid_device_lent_bytes{")
	})
	s.notLeaking(state)
}

// loaded lists the models that are ready.
func (s *runningServer) loaded() (names []string) {
	s.t.Helper()
	_, body := s.request("POST", "/v2/repository/index", `{"ready":true}`)
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		s.t.Fatalf("%v: %s", err, body)
	}
	for _, m := range list {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}
