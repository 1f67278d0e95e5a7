package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const (
	// platformConfig and platformModel belong to a model that returns its input.
	platformConfig = `
backend: "python"
max_batch_size: 8
input [ { name: "N" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
`
	platformModel = `
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        BEFORE
        return [pb.InferenceResponse([pb.Tensor("OUT", pb.get_input_tensor_by_name(r, "N").as_numpy())]) for r in requests]
`
	platformRequest = `{"inputs":[{"name":"N","datatype":"INT32","shape":[1,2],"data":[1,2]}]}`
)

// platformModels creates directories as SageMaker places them below /opt/ml/models.
func platformModels(t *testing.T) string {
	t.Helper()
	ensemble := `
platform:  "ensemble"
max_batch_size: 8
input [ { name: "N" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "first" model_version: -1
  input_map { key: "N" value: "N" } output_map { key: "OUT" value: "OUT" } } ] }
`
	before := func(line string) string { return strings.Replace(platformModel, "BEFORE", line, 1) }
	plain := before("pass")
	return writeFiles(t, map[string]string{
		"a/model/plain/config.pbtxt": platformConfig, "a/model/plain/1/model.py": plain,
		"b/model/config.pbtxt": `name: "other"` + platformConfig, "b/model/1/model.py": plain, "b/model/sub/config.pbtxt": platformConfig,
		"e/model/first/config.pbtxt": platformConfig, "e/model/first/1/model.py": plain,
		"e/model/both/config.pbtxt": ensemble, "e/model/both/1/.keep": "",
		"e/model/zlast/config.pbtxt": platformConfig, "e/model/zlast/1/model.py": plain,
		"half/model/first/config.pbtxt": platformConfig, "half/model/first/1/model.py": plain,
		"half/model/both/config.pbtxt": strings.Replace(ensemble, "model_version: -1", "model_version: 2", 1), "half/model/both/1/.keep": "",
		"bad/model/m/config.pbtxt": platformConfig, "bad/model/m/1/model.py": `raise RuntimeError("no")`,
		"oom/model/m/config.pbtxt": platformConfig, "oom/model/m/1/model.py": `raise MemoryError("CUDA out of memory")`,
		"oomrun/model/m/config.pbtxt": platformConfig, "oomrun/model/m/1/model.py": before(`raise MemoryError("CUDA out of memory")`),
		"fail/model/m/config.pbtxt": platformConfig, "fail/model/m/1/model.py": before(`raise RuntimeError("it fails")`),
		"dec/model/m/config.pbtxt":   strings.Replace(platformConfig, "max_batch_size: 8", "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }", 1),
		"dec/model/m/1/model.py":     plain,
		"nothing/model/.keep":        "",
		"waits/model/m/config.pbtxt": platformConfig, "waits/model/m/1/model.py": before(`
        import os, time
        here = os.path.dirname(__file__)
        open(here + "/inside", "w").close()
        while not os.path.exists(here + "/go"): time.sleep(0.01)`),
	})
}

func platformFlags(t *testing.T, more ...string) (flags []string, port int) {
	port = testkit.Port(t)
	return append([]string{"--model-control-mode=explicit", "--allow-sagemaker=true", fmt.Sprintf("--sagemaker-port=%d", port)}, more...), port
}

// TestSageMakersModelsAreServedAsByTriton checks that replies match
// testdata/sagemaker_models.jsonl. They are Triton's replies, except in rows marked as different.
func TestSageMakersModelsAreServedAsByTriton(t *testing.T) {
	base := platformModels(t)
	flags, port := platformFlags(t, "--sagemaker-model-directory="+base)
	start(t, testkit.Python(t).Path, t.TempDir(), flags...)
	checkPlatforms(t, "sagemaker_models.jsonl", map[string]int{"S": port}, base, true)
}

// TestSageMakersModelsSameAsTriton checks the recorded replies against a real Triton.
func TestSageMakersModelsSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	flags, port := platformFlags(t)
	startTriton(t, dir, t.TempDir(), flags...)
	awaitPorts(t, map[string]int{"S": port})
	checkPlatforms(t, "sagemaker_models.jsonl", map[string]int{"S": port}, platformModels(t), false)
}

// platform sends requests to the SageMaker endpoint as the platform does.
type platform struct {
	t    *testing.T
	base string
	port int
}

func startPlatform(t *testing.T, more ...string) (*runningServer, platform) {
	t.Helper()
	base := platformModels(t)
	flags, port := platformFlags(t, append(more, "--sagemaker-model-directory="+base)...)
	return start(t, testkit.Python(t).Path, t.TempDir(), flags...), platform{t, base, port}
}

// ask returns the status and the body of a reply.
func (p platform) ask(method, path, body string, headers ...string) (int, string) {
	r, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", p.port, path), strings.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return 0, ""
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := client.Do(r)
	if err != nil {
		p.t.Error(err)
		return 0, ""
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		p.t.Error(err)
	}
	return reply.StatusCode, string(text)
}

func (p platform) want(status int, method, path, body string, headers ...string) {
	p.t.Helper()
	if got, text := p.ask(method, path, body, headers...); got != status {
		p.t.Errorf("%s %s %s: got %d %s, want %d", method, path, body, got, text, status)
	}
}

func (p platform) loadBody(hash, directory string) string {
	return fmt.Sprintf(`{"model_name":%q,"url":%q}`, hash, p.base+"/"+directory+"/model")
}

func modelIndex(t *testing.T, s *runningServer) string {
	t.Helper()
	_, text, err := s.try(http.MethodPost, "/v2/repository/index", nil, nil)
	if err != nil {
		t.Error(err)
	}
	return text
}

// TestSageMakersModelsComeAndGo loads, invokes and unloads the same models from concurrent clients,
// including an ensemble, while another model stays in use. In the end only that model may be
// registered.
func TestSageMakersModelsComeAndGo(t *testing.T) {
	_, p := startPlatform(t)
	p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("b", "b"))
	var all sync.WaitGroup
	for _, c := range []struct{ hash, directory string }{{"x1", "a"}, {"x2", "a"}, {"y", "e"}} {
		all.Go(func() {
			for range 4 {
				for _, step := range []struct {
					method, path, body string
					may                []int
				}{
					{http.MethodPost, "/models", p.loadBody(c.hash, c.directory), []int{http.StatusOK, http.StatusConflict}},
					{http.MethodPost, "/models/" + c.hash + "/invoke", platformRequest, []int{http.StatusOK, http.StatusNotFound}},
					{http.MethodPost, "/models/b/invoke", platformRequest, []int{http.StatusOK}},
					{http.MethodGet, "/models", "", []int{http.StatusOK}},
					{http.MethodDelete, "/models/" + c.hash, "", []int{http.StatusOK, http.StatusNotFound}},
				} {
					status, text := p.ask(step.method, step.path, step.body)
					good := false
					for _, may := range step.may {
						good = good || status == may
					}
					if !good {
						t.Errorf("%s %s: got %d %s, want one of %v", step.method, step.path, status, text, step.may)
					}
				}
			}
		})
	}
	all.Wait()
	if _, text := p.ask(http.MethodGet, "/models", ""); text != `{"models":[{"modelName":"b","modelUrl":"`+p.base+`/b"}]}` {
		t.Errorf("got %s, want b alone", text)
	}
	for _, directory := range []string{"a", "e"} {
		p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("last", directory))
		p.want(http.StatusOK, http.MethodDelete, "/models/last", "")
	}
}

// TestSageMakersUnloadWaitsForItsRequestsAlone checks that an unload waits for its own requests,
// while other models are loaded and serve. On Triton these wait too.
func TestSageMakersUnloadWaitsForItsRequestsAlone(t *testing.T) {
	s, p := startPlatform(t)
	p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("slow", "waits"))
	version := filepath.Join(p.base, "waits", "model", "m", "1")
	var both sync.WaitGroup
	both.Go(func() { p.want(http.StatusOK, http.MethodPost, "/models/slow/invoke", platformRequest) })
	s.until("the request is inside", func() bool {
		_, err := os.Stat(filepath.Join(version, "inside"))
		return err == nil
	})
	both.Go(func() { p.want(http.StatusOK, http.MethodDelete, "/models/slow", "") })
	s.until("the model is being unloaded", func() bool { return strings.Contains(modelIndex(t, s), "UNLOADING") })
	p.want(http.StatusConflict, http.MethodPost, "/models", p.loadBody("again", "waits"))
	p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("a", "a"))
	p.want(http.StatusOK, http.MethodPost, "/models/a/invoke", platformRequest)
	p.want(http.StatusBadRequest, http.MethodPost, "/models/slow/invoke", platformRequest)
	if _, text := p.ask(http.MethodGet, "/models", ""); text != `{"models":[{"modelName":"a","modelUrl":"`+p.base+`/a/model"},{}]}` {
		t.Errorf("got %s, want a and a model that is not ready", text)
	}
	if err := os.WriteFile(filepath.Join(version, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	p.want(http.StatusNotFound, http.MethodGet, "/models/slow", "")
}

// TestSageMakersFailuresLeaveNothing checks that a failed load leaves neither a repository nor
// members of an ensemble, and that the name is free again.
func TestSageMakersFailuresLeaveNothing(t *testing.T) {
	for _, flag := range []string{"--model-namespacing=false", "--model-namespacing=true"} {
		t.Run(flag, func(t *testing.T) {
			s, p := startPlatform(t, flag)
			for _, directory := range []string{"bad", "half", "nothing", "bad"} {
				p.want(http.StatusBadRequest, http.MethodPost, "/models", p.loadBody("m", directory))
				if text := modelIndex(t, s); text != "[]" {
					t.Errorf("%s: got the index %s, want nothing", directory, text)
				}
			}
			p.want(http.StatusInsufficientStorage, http.MethodPost, "/models", p.loadBody("m", "oom"))
			p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("m", "a"))
			p.want(http.StatusOK, http.MethodPost, "/models/m/invoke", platformRequest)
			p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("e", "e"))
			p.want(http.StatusOK, http.MethodPost, "/models/e/invoke", platformRequest)
		})
	}
}

// TestSageMakersUnloadByAnotherName loads a model with one name and unloads it by another. The
// unload must not wait, and the model must load again.
func TestSageMakersUnloadByAnotherName(t *testing.T) {
	s, p := startPlatform(t)
	const header, name = "X-Amzn-SageMaker-Target-Model", "target"
	for range 2 {
		p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("hash", "a"), header, name)
		p.want(http.StatusOK, http.MethodDelete, "/models/hash", "")
		p.want(http.StatusNotFound, http.MethodGet, "/models/hash", "")
	}
	p.want(http.StatusOK, http.MethodPost, "/models", p.loadBody("hash", "a"), header, name)
	p.want(http.StatusOK, http.MethodPost, "/models/hash/invoke", platformRequest, header, name)
	p.want(http.StatusOK, http.MethodDelete, "/models/hash", "", header, name)
	if text := modelIndex(t, s); text != "[]" {
		t.Errorf("got the index %s, want nothing", text)
	}
}

// TestSageMakersModelsNeedExplicitMode checks that loads need explicit mode, with Triton's error,
// and that --http-restricted-api applies to the endpoint.
func TestSageMakersModelsNeedExplicitMode(t *testing.T) {
	base, port := platformModels(t), testkit.Port(t)
	start(t, testkit.Python(t).Path, cloudRepository(t), "--allow-sagemaker=true", fmt.Sprintf("--sagemaker-port=%d", port),
		"--sagemaker-model-directory="+base, "--http-restricted-api=model-repository:key=value")
	p := platform{t, base, port}
	if status, text := p.ask(http.MethodPost, "/models", p.loadBody("a", "a"), "key", "value"); status != http.StatusBadRequest ||
		text != `{"error":"repository registration is not allowed if model control mode is not EXPLICIT"}` {
		t.Errorf("got %d %s", status, text)
	}
	p.want(http.StatusForbidden, http.MethodPost, "/models", p.loadBody("a", "a"))
	p.want(http.StatusForbidden, http.MethodGet, "/models", "")
	p.want(http.StatusForbidden, http.MethodDelete, "/models/none", "")
	p.want(http.StatusNotFound, http.MethodPost, "/models/none/invoke", platformRequest)
}
