package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const backendRepository = "../examples/backend_models"

// tutorial lists the tutorial's backends with their models. The client of a backend's first model
// sends requests to all of them.
var tutorial = map[string][]string{
	"minimal":     {"batching", "nonbatching"},
	"recommended": {"recommended_batching"},
	"bls":         {"bls_fp32"},
	"repeat":      {"repeat_int32"},
	"stateful":    {"stateful_cell"},
	"identity":    {"identity"},
	"square":      {"square_int32"},
}

// buildBackends builds the tutorial's backends as "make backends" does, and returns their
// directory.
var buildBackends = sync.OnceValues(func() (directory string, err error) {
	for name := range tutorial {
		program := "nereid_" + name
		path, err := buildCommand(filepath.Join("backends-under-test", name, program), "../examples/backends/"+name+"/"+program, false)
		if err != nil {
			return "", err
		}
		directory = filepath.Dir(filepath.Dir(path))
	}
	return directory, nil
})

// buildLinkedServer builds the server with the tutorial's backends linked in, with the race
// detector if the tests use it.
var buildLinkedServer = sync.OnceValues(func() (string, error) {
	return buildCommand("nereid-tutorial-under-test", "../examples/backends/server", raceEnabled)
})

// copyBackendModels copies the models, so that tests can change them.
func copyBackendModels(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(backendRepository)); err != nil {
		t.Fatal(err)
	}
	// A batch forms as soon as both requests of a client have arrived.
	for _, model := range []string{"batching", "recommended_batching"} {
		path := filepath.Join(root, model, "config.pbtxt")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), "microseconds: 5000000", "microseconds: 30000000 preferred_batch_size: [ 2 ]", 1)
		if changed == string(text) {
			t.Fatalf("%s has another delay", path)
		}
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// callingNative is a Python model that makes a BLS request to a native one, and an ensemble of both
// kinds.
var callingNative = map[string]string{
	"calls_native/config.pbtxt": `
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
`,
	"calls_native/1/model.py": `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            answer = pb_utils.InferenceRequest(
                model_name="identity", requested_output_names=["OUTPUT0"], inputs=[pb_utils.Tensor("INPUT0", array)]
            ).exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            out = pb_utils.get_output_tensor_by_name(answer, "OUTPUT0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out + 1)]))
        return responses
`,
	"mixed/1/": "",
	"mixed/config.pbtxt": `
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 16 ] } ]
ensemble_scheduling {
  step [
    { model_name: "identity" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "same" } },
    { model_name: "addsub_python" model_version: -1
      input_map { key: "INPUT0" value: "same" } input_map { key: "INPUT1" value: "IN" } output_map { key: "OUTPUT0" value: "twice" } },
    { model_name: "calls_native" model_version: -1 input_map { key: "IN" value: "twice" } output_map { key: "OUT" value: "SUM" } }
  ]
}
`,
}

// TestBackendsOfTheTutorial serves the tutorial's backends as plugins and linked in. Their clients
// must succeed, and the log must contain the tutorial's texts.
func TestBackendsOfTheTutorial(t *testing.T) {
	testkit.Story(t)
	for _, way := range []string{"plugins", "linked"} {
		t.Run(way, func(t *testing.T) {
			root := copyBackendModels(t)
			testkit.WriteFiles(t, root, callingNative)
			s := startBackends(t, way, root, "--model-control-mode=explicit", "--load-model=*")
			for _, models := range tutorial {
				t.Run(models[0], func(t *testing.T) { s.runBackendClient(t, root, models[0]) })
			}

			// The three requests have 0, 1 and 3 responses, and then the final flag.
			s.until("statistics of responses", func() bool {
				_, body := s.request("GET", "/v2/models/square_int32/stats", "")
				type counted struct {
					Count int
				}
				var shown struct {
					Stats []struct {
						Responses map[string]struct {
							Success, Fail, Cancel counted
							Infer                 counted `json:"compute_infer"`
							Output                counted `json:"compute_output"`
							Empty                 counted `json:"empty_response"`
						} `json:"response_stats"`
					} `json:"model_stats"`
				}
				if err := json.Unmarshal([]byte(body), &shown); err != nil || len(shown.Stats) != 1 {
					t.Fatalf("got error %v of %s", err, body)
				}
				text := ""
				for _, index := range slices.Sorted(maps.Keys(shown.Stats[0].Responses)) {
					r := shown.Stats[0].Responses[index]
					text += fmt.Sprintf("%s: infer %d output %d success %d fail %d empty %d cancel %d; ", index, r.Infer.Count, r.Output.Count, r.Success.Count, r.Fail.Count, r.Empty.Count, r.Cancel.Count)
				}
				return text == "0: infer 3 output 2 success 2 fail 0 empty 1 cancel 0; 1: infer 2 output 1 success 1 fail 0 empty 1 cancel 0; "+
					"2: infer 1 output 1 success 1 fail 0 empty 0 cancel 0; 3: infer 1 output 0 success 0 fail 0 empty 1 cancel 0; "
			})

			const sixteen = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"
			status, body := s.request("POST", "/v2/models/mixed/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[16],"data":[`+sixteen+`]}]}`)
			var answer struct{ Outputs []struct{ Data []float32 } }
			if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || len(answer.Outputs) != 1 ||
				answer.Outputs[0].Data[0] != 3 || answer.Outputs[0].Data[15] != 33 {
				t.Errorf("an ensemble of native and Python models: got status %d and %s, want twice the input and 1", status, body)
			}

			// This sends a request to a model that is not loaded.
			if status, body := s.request("POST", "/v2/repository/models/addsub_onnx/unload", ""); status != http.StatusOK {
				t.Fatalf("unload: got status %d: %s", status, body)
			}
			s.until("unloaded", func() bool {
				status, _ := s.request("GET", "/v2/models/addsub_onnx/ready", "")
				return status != http.StatusOK
			})
			input := func(name string) string {
				return `{"name":"` + name + `","datatype":"FP32","shape":[16],"data":[` + sixteen + `]}`
			}
			status, body = s.request("POST", "/v2/models/bls_fp32/infer", `{"inputs":[`+input("INPUT0")+","+input("INPUT1")+`]}`)
			if got := errorOf(t, body); status != http.StatusInternalServerError || got != "Failed to send inference requests" {
				t.Errorf("a model that asks one which is not there: got status %d and %q", status, got)
			}

			s.stop()
			for _, want := range []string{
				"model batching: requests in batch 2", "model nonbatching: requests in batch 1", "batched IN0 value: [ 1, 2, 3, 4",
				"TRITONBACKEND_Initialize: recommended", "Triton TRITONBACKEND API version: 1.19", "'recommended' TRITONBACKEND API version: 1.19",
				"backend configuration:", `"default-max-batch-size":"4"`, "TRITONBACKEND_Finalize: state is 'backend state'",
				"model recommended_batching: requests in batch 2", "batched INPUT value: [ ",
				"waiting 200 ms, then sending response 1 of 4", "sent response 4 of 4", "sent response 3 of 3", "IN size is zero, no responses sent",
				"Failed to execute the inference request. Model 'addsub_onnx' is not ready.",
			} {
				if !s.prints(want) {
					t.Errorf("the log has no %q", want)
				}
			}
			for _, never := range []string{"panicked", "released twice", "had no final response", "does not return"} {
				if strings.Contains(s.log.String(), never) {
					t.Errorf("the log has %q", never)
				}
			}
		})
	}
}

// startBackends starts a server with the tutorial's backends.
func startBackends(t *testing.T, way, root string, flags ...string) *runningServer {
	t.Helper()
	var s *runningServer
	if way == "linked" {
		binary, err := buildLinkedServer()
		if err != nil {
			t.Fatal(err)
		}
		s = launchProgram(t, []string{binary}, testkit.Python(t).Path, root, flags...)
	} else {
		directory, err := buildBackends()
		if err != nil {
			t.Fatal(err)
		}
		s = launch(t, testkit.Python(t).Path, root, append(flags, "--backend-directory="+directory)...)
	}
	s.waitReady()
	return s
}

// runBackendClient runs the client of a model.
func (s *runningServer) runBackendClient(t *testing.T, root, model string) {
	t.Helper()
	output, err := exec.Command(clientPython(t), filepath.Join(root, model, "client.py"), "--host=127.0.0.1",
		fmt.Sprintf("--http-port=%d", s.http), fmt.Sprintf("--grpc-port=%d", s.grpc)).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "PASS: "+model+"\n") {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestARepeatedStreamEndsWithAnError forces the unload of a streaming model, as a plugin and linked
// in. The client must receive an error that says that the stream is incomplete.
func TestARepeatedStreamEndsWithAnError(t *testing.T) {
	testkit.Story(t)
	for _, way := range []string{"plugins", "linked"} {
		t.Run(way, func(t *testing.T) {
			s := startBackends(t, way, copyBackendModels(t), "--model-control-mode=explicit", "--load-model=repeat_int32",
				"--backend-config=repeat,unload-timeout-seconds=1", "--backend-config=python,unload-timeout-seconds=1") // for plugins, and for linked backends
			stream := make(chan string, 1)
			go func() {
				_, body, err := s.try("POST", "/v2/models/repeat_int32/generate_stream", nil, []byte(`{"IN":[7,8],"DELAY":[0,3600000],"WAIT":[0]}`))
				stream <- fmt.Sprint(body, err)
			}()
			if !s.prints("sent response 1 of 2") {
				t.Fatal("nothing is streamed")
			}
			if status, body := s.request("POST", "/v2/repository/models/repeat_int32/unload", ""); status != http.StatusOK {
				t.Fatalf("unload: status %d: %s", status, body)
			}
			got := <-stream
			if !strings.Contains(got, `"OUT":7`) || !strings.Contains(got, "the model was unloaded after 1 of 2 responses") || !strings.HasSuffix(got, "<nil>") {
				t.Errorf("got the stream %q, want a response and the error", got)
			}
		})
	}
}

// TestStrategiesOfLinkedBackends queues 12 requests of 32 bytes and checks the number of batches
// that each strategy forms.
func TestStrategiesOfLinkedBackends(t *testing.T) {
	t.Setenv("TRITONSERVER_DELAY_SCHEDULER", "12") // the first batch waits for all 12 requests
	const config = `
backend: "%s"
max_batch_size: 64
input [ { name: "IN" data_type: TYPE_FP16 dims: [ 4, 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP16 dims: [ 4, 4 ] } ]
dynamic_batching { max_queue_delay_microseconds: 1000 }
parameters { key: "MAX_BATCH_VOLUME_BYTES" value { string_value: "96" } }
instance_group [ { kind: KIND_CPU } ]
`
	root := writeFiles(t, map[string]string{
		"volume/config.pbtxt": fmt.Sprintf(config, "identity_volume"), "volume/1/none": "",
		"single/config.pbtxt": fmt.Sprintf(config, "identity_single"), "single/1/none": "",
	})
	s := startBackends(t, "linked", root)
	for model, want := range map[string]int{"volume": 4, "single": 12} {
		var asking sync.WaitGroup
		for range 12 {
			asking.Go(func() {
				head := `{"inputs":[{"name":"IN","datatype":"FP16","shape":[1,4,4],"parameters":{"binary_data_size":32}}],"parameters":{"binary_data_output":true}}`
				header := map[string]string{"Inference-Header-Content-Length": fmt.Sprint(len(head)), "Content-Type": "application/octet-stream"}
				status, body, err := s.try("POST", "/v2/models/"+model+"/infer", header, append([]byte(head), make([]byte, 32)...))
				if err != nil || status != http.StatusOK {
					t.Errorf("%s: got status %d, %v: %s", model, status, err, body)
				}
			})
		}
		asking.Wait()
		_, body := s.request("GET", "/v2/models/"+model+"/stats", "")
		var stats struct {
			Models []struct {
				Executions int `json:"execution_count"`
				Inferences int `json:"inference_count"`
			} `json:"model_stats"`
		}
		if err := json.Unmarshal([]byte(body), &stats); err != nil || len(stats.Models) != 1 || stats.Models[0].Executions != want || stats.Models[0].Inferences != 12 {
			t.Errorf("%s: got %s, want 12 inferences in %d executions", model, body, want)
		}
	}
}

// TestPluginsKeepTheRules runs `nereid backend test` on the tutorial's programs and expects all
// rules to pass.
func TestPluginsKeepTheRules(t *testing.T) {
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	directory, err := buildBackends()
	if err != nil {
		t.Fatal(err)
	}
	for name, models := range tutorial {
		t.Run(name, func(t *testing.T) {
			arguments := []string{"backend", "test", "--json", filepath.Join(directory, name)}
			for _, model := range models {
				arguments = append(arguments, "--model="+filepath.Join(backendRepository, model))
			}
			output, err := exec.Command(binary, arguments...).Output()
			var report struct {
				Results []struct{ Model, Rule, Status string }
			}
			if decoded := json.Unmarshal(output, &report); err != nil || decoded != nil {
				t.Fatalf("%v, %v\n%s", err, decoded, output)
			}
			passed := 0
			for _, r := range report.Results {
				if r.Status == "passed" {
					passed++
				}
			}
			if want := 9 * len(models); passed < want {
				t.Errorf("%d rules have passed, want %d at least:\n%s", passed, want, output)
			}
		})
	}
}
