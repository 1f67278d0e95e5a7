package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// buildLinked builds the server of testdata/linked, with the race detector if the tests use it.
var buildLinked = sync.OnceValues(func() (string, error) {
	return buildCommand("nereid-linked-under-test", "./testdata/linked", raceEnabled)
})

// startLinked starts the server of testdata/linked and waits until it is ready.
func startLinked(t *testing.T, repository string, flags ...string) *runningServer {
	t.Helper()
	binary, err := buildLinked()
	if err != nil {
		t.Fatal(err)
	}
	s := launchProgram(t, []string{binary}, "", repository, flags...)
	s.waitReady()
	return s
}

// probe returns the config of a model of testdata/linked with one parameter.
func probe(parameter, value, fields string) string {
	return fmt.Sprintf("backend: \"probe\"\nparameters { key: %q value { string_value: %q } }\n%s", parameter, value, fields)
}

// TestLinkedBackendServesTheRealClient checks a server with a linked backend. Its models complete
// their configs, serve HTTP and gRPC, call each other, send streams, and report statistics, metrics
// and memory.
func TestLinkedBackendServesTheRealClient(t *testing.T) {
	s := startLinked(t, writeFiles(t, map[string]string{
		"plain/config.pbtxt": `backend: "probe" dynamic_batching {} instance_group { kind: KIND_CPU count: 2 }`, "plain/1/.keep": "",
		"caller/config.pbtxt": probe("calls", "plain", ""), "caller/1/.keep": "",
		"sender/config.pbtxt": probe("sends", "many", ""), "sender/1/.keep": "",
		"rounds/config.pbtxt": probe("rounds", "many", `sequence_batching { iterative_sequence: true } model_transaction_policy { decoupled: true }
			input { name: "IN" data_type: TYPE_INT32 dims: -1 } output { name: "OUT" data_type: TYPE_INT32 dims: -1 }`), "rounds/1/.keep": "",
	}), "--backend-config=probe,color=green", "--host-policy=cpu,numa-node=0")
	s.runClient("linked.py")
	for _, want := range []string{
		"probe: initialized, default-max-batch-size is 4, color is green", "linked in",
		`probe: instance plain_0_0 initialized, policy {\"cpu\":{\"numa-node\":\"0\"}}`, "main.go:",
	} {
		if !s.prints(want) && !s.prints(strings.ReplaceAll(want, `\"`, `"`)) {
			t.Errorf("the server has not printed %q", want)
		}
	}
	if strings.Contains(s.log.String(), "there is no backend") {
		t.Error("the server warns of the settings of its own backend")
	}
	if text := s.scrape(); !strings.Contains(text, `probe_requests{of="caller"} 6`) {
		t.Errorf("the custom metric is not shown, or not 6:\n%s", text)
	}
	s.stop()
}

// TestLinkedBackendLoadsAndUnloads checks that models are initialized at their load and closed at
// their unload, and that more instances need no new model. A panic in a hook must fail only its
// load or request.
func TestLinkedBackendLoadsAndUnloads(t *testing.T) {
	const fixed = `input { name: "IN" data_type: TYPE_INT32 dims: -1 } output { name: "OUT" data_type: TYPE_INT32 dims: -1 } `
	files := map[string]string{"plain/config.pbtxt": `backend: "probe" ` + fixed + `instance_group { kind: KIND_CPU count: 1 }`, "plain/1/.keep": ""}
	for _, hook := range []string{"NewModel", "NewInstance", "Execute", "Ready", "Instance.Close", "Model.Close"} {
		files[hook+"/config.pbtxt"], files[hook+"/1/.keep"] = probe("panics", hook, fixed), ""
	}
	for _, hook := range []string{"NewModel", "NewInstance", "Execute", "Ready", "Instance.Close", "Model.Close"} {
		files["exits"+hook+"/config.pbtxt"], files["exits"+hook+"/1/.keep"] = probe("exits", hook, fixed), ""
	}
	repository := writeFiles(t, files)
	s := startLinked(t, repository, "--model-control-mode=explicit", "--backend-config=probe,panics=Backend.Close")
	change := func(model, what string) (int, string) {
		return s.request("POST", "/v2/repository/models/"+model+"/"+what, "{}")
	}
	infer := func(model string, n int) (int, string) {
		return s.request("POST", "/v2/models/"+model+"/infer", fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[%d]}]}`, n))
	}
	for model, want := range map[string]string{
		"NewModel": "backend 'probe', model 'NewModel': NewModel panicked", "NewInstance": "backend 'probe', model 'NewInstance', instance 'NewInstance_0': NewInstance panicked",
		"exitsNewModel": "model 'exitsNewModel': NewModel ended its goroutine", "exitsNewInstance": "instance 'exitsNewInstance_0': NewInstance ended its goroutine",
	} {
		if status, text := change(model, "load"); status == http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("load %s: got %d, %s, want %q", model, status, text, want)
		}
	}
	for _, model := range []string{"plain", "Execute", "Ready", "Instance.Close", "Model.Close", "exitsExecute", "exitsReady", "exitsInstance.Close", "exitsModel.Close"} {
		if status, text := change(model, "load"); status != http.StatusOK {
			t.Fatalf("load %s: got %d, %s", model, status, text)
		}
	}
	if status, text := infer("Execute", 13); status != http.StatusInternalServerError || errorOf(t, text) != "backend 'probe', model 'Execute', instance 'Execute_0': Execute panicked" {
		t.Errorf("infer: got %d, %s, want that Execute panicked", status, text)
	}
	if status, text := infer("Execute", 12); status != http.StatusOK || !strings.Contains(text, `"data":[12]`) {
		t.Errorf("infer after the panic: got %d, %s", status, text)
	}
	if status, _ := s.request("GET", "/v2/models/Ready/ready", ""); status == http.StatusOK {
		t.Error("a model whose Ready panics is ready")
	}
	if status, text := infer("exitsExecute", 13); status != http.StatusInternalServerError || !strings.HasSuffix(errorOf(t, text), "Execute ended its goroutine") {
		t.Errorf("infer: got %d, %s, want that Execute ended its goroutine", status, text)
	}
	if status, text := infer("exitsExecute", 12); status != http.StatusOK || !strings.Contains(text, `"data":[12]`) {
		t.Errorf("infer after that: got %d, %s", status, text)
	}
	if status, _ := s.request("GET", "/v2/models/exitsReady/ready", ""); status == http.StatusOK {
		t.Error("a model whose Ready ends its goroutine is ready")
	}

	// Two more instances must not initialize the model again.
	config := strings.Replace(files["plain/config.pbtxt"], "count: 1", "count: 3", 1)
	if err := os.WriteFile(filepath.Join(repository, "plain", "config.pbtxt"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text := change("plain", "load"); status != http.StatusOK {
		t.Fatalf("load of more instances: got %d, %s", status, text)
	}
	for n := range 3 {
		if text := fmt.Sprintf("probe: instance plain_0_%d initialized", n); s.printed(text, 1) != 1 {
			t.Errorf("%q is not printed once", text)
		}
	}
	if n := s.printed("probe: model plain initialized", 1); n != 1 {
		t.Errorf("the model was initialized %d times, want once", n)
	}
	if status, text := infer("plain", 5); status != http.StatusOK || !strings.Contains(text, `"data":[5]`) {
		t.Errorf("infer: got %d, %s", status, text)
	}

	for _, model := range []string{"plain", "Instance.Close", "Model.Close", "Execute", "Ready", "exitsExecute", "exitsReady", "exitsInstance.Close", "exitsModel.Close"} {
		if status, text := change(model, "unload"); status != http.StatusOK {
			t.Errorf("unload %s: got %d, %s", model, status, text)
		}
		if text := "probe: model " + model + " closed"; s.printed(text, 1) != 1 {
			t.Errorf("%q is not printed once", text)
		}
	}
	for _, want := range []string{"model 'Instance.Close', instance 'Instance.Close_0': Instance.Close panicked", "model 'Model.Close': Model.Close panicked",
		"instance 'exitsInstance.Close_0': Instance.Close ended its goroutine", "model 'exitsModel.Close': Model.Close ended its goroutine"} {
		if !s.prints(want) {
			t.Errorf("the server has not printed %q", want)
		}
	}
	s.stop()
	if !s.prints("backend 'probe': Close panicked") {
		t.Error("the server has not printed that the Close of its backend panicked")
	}
}
