package nereid_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	doubleConfig = `
backend: "python"
max_batch_size: 0
input [{ name: "X" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }]
instance_group [{ kind: KIND_CPU }]
`
	doubleModel = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * pb_utils.get_input_tensor_by_name(r, "X").as_numpy())])
            for r in requests
        ]
`
)

// repository creates a repository with the model "double" and the given model.py.
func repository(t testing.TB, model string) string {
	t.Helper()
	return testkit.WriteFiles(t, t.TempDir(), map[string]string{"double/config.pbtxt": doubleConfig, "double/1/model.py": model})
}

// options returns options for a server on ports chosen by the kernel.
func options(t testing.TB, repository string) nereid.Options {
	t.Helper()
	o := nereid.Defaults()
	o.Repository.Paths = []string{repository}
	o.HTTP.Address, o.HTTP.Port = "127.0.0.1", 0
	o.GRPC.Address, o.GRPC.Port = "127.0.0.1", 0
	o.Metrics.Port = 0
	o.HTTP.DrainTime = 0 // the client's connection stays open
	o.Backends.Settings = map[string]map[string]string{"python": {"python-executable": testkit.Python(t).Path}}
	o.Logger = zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	return o
}

// serve runs a server until stop is called or the test ends; ended then returns the result of Run.
func serve(t *testing.T, o nereid.Options) (s *nereid.Server, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	s, err := nereid.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	outcome := make(chan error, 1) // Run's goroutine sends once
	go func() { outcome <- s.Run(ctx) }()
	return s, stop, outcome
}

// TestEmbeddedServerServesAndLeavesNothing sends a request to a Python model in a server inside
// this process, and checks that nothing is left behind: TestMain looks for processes, mappings and
// sockets.
func TestEmbeddedServerServesAndLeavesNothing(t *testing.T) {
	s, err := nereid.New(options(t, repository(t, doubleModel)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.HTTPAddr() != nil {
		t.Errorf("before Listen: got address %v, want none", s.HTTPAddr())
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"GRPC": s.GRPCAddr().String(), "metrics": s.MetricsAddr().String()} {
		if strings.HasSuffix(address, ":0") {
			t.Errorf("%s: got address %s, want the port that the kernel has chosen", name, address)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1) // receives the result of Run
	go func() { ended <- s.Run(ctx) }()

	body := `{"inputs":[{"name":"X","datatype":"INT32","shape":[3],"data":[1,2,3]}]}`
	status, answer := request(t, "http://"+s.HTTPAddr().String()+"/v2/models/double/infer", body)
	var got struct {
		Outputs []struct{ Data []int }
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusOK || len(got.Outputs) != 1 ||
		!reflect.DeepEqual(got.Outputs[0].Data, []int{2, 4, 6}) {
		t.Errorf("got status %d, %s (error %v), want 2, 4, 6", status, answer, err)
	}
	if status, answer := request(t, "http://"+s.MetricsAddr().String()+"/metrics", ""); status != http.StatusOK ||
		!strings.Contains(answer, `nv_inference_request_success{model="double",version="1"} 1`) {
		t.Errorf("metrics: got status %d, %s, want one request of the model", status, answer)
	} else {
		operations, err := os.ReadFile("docs/operations.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, own := range regexp.MustCompile(`(?m)^# HELP (nereid_\w+)`).FindAllStringSubmatch(answer, -1) {
			if !strings.Contains(string(operations), "`"+own[1]) {
				t.Errorf("docs/operations.md does not name the metric %s", own[1])
			}
		}
	}
	if status, answer := request(t, "http://"+s.HTTPAddr().String()+"/v2/logging", ""); status != http.StatusOK ||
		!strings.Contains(answer, `"log_info":false,"log_warning":true`) {
		t.Errorf("log settings: got status %d, %s, want the level of the logger", status, answer)
	}

	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: got error %v after its context ended, want none", err)
	}
}

// TestEmbeddedServerThatNeverRuns checks that Close releases everything from Load and Listen.
func TestEmbeddedServerThatNeverRuns(t *testing.T) {
	s, err := nereid.New(options(t, repository(t, doubleModel)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
}

// TestEmbeddedServerWithoutItsModels checks that Run fails if all models fail to load, and that a
// server without ExitOnError reports a missing repository by RepositoryError.
func TestEmbeddedServerWithoutItsModels(t *testing.T) {
	o := options(t, repository(t, "raise ValueError('no model')"))
	o.Logger = zerolog.Nop()
	s, err := nereid.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "failed to load all models") {
		t.Errorf("Run: got error %v, want one about the models", err)
	}
	s.Close()

	o.ExitOnError = false
	o.Repository.Paths = []string{filepath.Join(t.TempDir(), "missing")}
	if s, err = nereid.New(o); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.RepositoryError() == nil {
		t.Error("the repository is missing, and RepositoryError returns nil")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Run(ended); err == nil {
		t.Error("Run without a repository and with a context that has ended: got no error")
	}
}

// TestUnusableAddressesAreReportedFirst checks that no model is loaded if an address is unusable.
func TestUnusableAddressesAreReportedFirst(t *testing.T) {
	o := options(t, repository(t, "raise ValueError('loaded')"))
	o.HTTP.Address = "unix:" + filepath.Join(t.TempDir(), "missing", "http.sock")
	s, err := nereid.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "failed to start HTTP service: Unavailable - ") || !strings.HasSuffix(err.Error(), "missing: no such file or directory") {
		t.Errorf("Run: got error %v, want one about the socket", err)
	}
	if attempted := s.Registry().Attempted(); len(attempted) > 0 {
		t.Errorf("got models %v, want none", attempted)
	}
}

// TestKillEndsAnEmbeddedServer checks that Run returns although a model never answers.
func TestKillEndsAnEmbeddedServer(t *testing.T) {
	const hangs = `
import os
import time


class TritonPythonModel:
    def execute(self, requests):
        open(os.path.join(os.path.dirname(__file__), "begun"), "w").close()
        time.sleep(3600)
`
	root := repository(t, hangs)
	o := options(t, root)
	o.Logger = zerolog.Nop()
	s, stop, ended := serve(t, o)
	answered := make(chan struct{}) // closed by the goroutine
	go func() {
		defer close(answered)
		body := `{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]}`
		if reply, err := http.Post("http://"+s.HTTPAddr().String()+"/v2/models/double/infer", "application/json", strings.NewReader(body)); err == nil {
			reply.Body.Close()
		}
	}()
	testkit.Eventually(t, time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(root, "double", "1", "begun"))
		return err == nil
	})
	stop()
	s.Kill()
	<-ended //nolint:errcheck // long before ExitTimeout, or the test takes that long
	<-answered
}

// request sends a request, a POST if it has a body, and returns the response.
func request(t testing.TB, url, body string) (status int, answer string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}
