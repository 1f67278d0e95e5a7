package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// examples are the clients of examples/models, with the output of each on success.
var examples = []struct {
	client string
	pass   string
	skip   string // the package without which the client skips, or ""
	beyond bool   // uses a feature that Triton lacks
}{
	{"add_sub", "add_sub", "", false},
	{"pytorch", "pytorch", "torch", false},
	{"jax", "jax", "jax", false},
	{"batch_auto_complete", "auto_complete", "", false},
	{"bls_sync", "BLS Sync", "", false},
	{"bls_async", "BLS Async", "", false},
	{"bls_decoupled_sync", "BLS Decoupled Sync", "", false},
	{"bls_decoupled_async", "BLS Decoupled Async", "", false},
	{"repeat_int32", "repeat_int32", "", false},
	{"square_int32", "square_int32", "", false},
	{"custom_metrics", "custom_metrics", "", false},
	{"resnet50", "ResNet50 instance kind", "torchvision", false},
	{"preprocessing", "preprocessing", "", false},
	{"sequence_counter", "sequence_counter", "", false},
	{"identity_fp32", "identity_fp32", "", false},
	{"identity_bytes", "identity_bytes", "", false},
	{"identity_all", "identity_all", "", false},
	{"dynamic_batching", "dynamic_batching", "", false},
	{"stacked_batch", "stacked_batch", "", false},
	{"sequence_direct", "sequence_direct and sequence_oldest", "", false},
	{"implicit_state", "implicit_state", "", true},
	{"iterative_countdown", "iterative_countdown", "", false},
	{"ensemble_text", "ensemble_text", "", false},
	{"response_cache", "response_cache", "", false},
	{"warm_up", "warm_up", "", false},
}

// exampleFlag is a server flag that one example needs.
const exampleFlag = "--cache-config=local,size=1048576"

const exampleRepository = "../examples/models"

// runExamples runs all clients of examples/models against the server. For Triton it leaves out the
// clients of features that Triton lacks.
func (s *runningServer) runExamples(t *testing.T, triton bool) {
	// All clients accept the same options.
	options := []string{
		"--host=127.0.0.1", fmt.Sprintf("--http-port=%d", s.http), fmt.Sprintf("--grpc-port=%d", s.grpc), fmt.Sprintf("--metrics-port=%d", s.metrics),
	}
	for _, example := range examples {
		if triton && example.beyond {
			continue
		}
		t.Run(example.client, func(t *testing.T) {
			arguments := append([]string{filepath.Join(exampleRepository, example.client, "client.py")}, options...)
			output, err := exec.Command(clientPython(t), arguments...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			passed := false
			for line := range strings.Lines(string(output)) {
				passed = passed || line == "PASS: "+example.pass+"\n"
				if text, ok := strings.CutPrefix(line, "SKIP: "); ok {
					t.Log(strings.TrimSpace(text))
				}
			}
			missing := example.skip != "" && strings.Contains(string(output), example.skip+" is not installed")
			switch {
			case missing:
				t.Skipf("%s is not installed for the Python of the models", example.skip)
			case !passed:
				t.Errorf("no line \"PASS: %s\":\n%s", example.pass, output)
			}
		})
	}
}

// TestExamplesRunTheirClients serves examples/models and expects each client to pass.
func TestExamplesRunTheirClients(t *testing.T) {
	testkit.Story(t)
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			s := start(t, python.Path, exampleRepository, exampleFlag, "--strict-outputs=true") // outputs must match the examples' configs
			s.runExamples(t, false)
			s.stop()
			// Each instance logs a message in finalize, including the three of custom_metrics. The
			// identity models have no finalize.
			if got, want := strings.Count(s.log.String(), "Cleaning up..."), 18; got != want {
				t.Errorf("%d instances said that they clean up, want %d", got, want)
			}
		})
	}
}

// TestExamplesOnTriton runs the same clients against a real Triton.
func TestExamplesOnTriton(t *testing.T) {
	dir := yardstick(t)
	repository, err := filepath.Abs(exampleRepository)
	if err != nil {
		t.Fatal(err)
	}
	s := startTriton(t, dir, repository, exampleFlag)
	s.waitReady()
	s.runExamples(t, true)
}

// TestEachExampleHasItsClient checks that each client in examples/models is run by a test.
func TestEachExampleHasItsClient(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(exampleRepository, "*", "client.py"))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, example := range examples {
		tested[example.client] = true
	}
	for _, path := range found {
		if name := filepath.Base(filepath.Dir(path)); !tested[name] {
			t.Errorf("%s is run by no test", path)
		}
	}
	if len(found) != len(examples) {
		t.Errorf("%d clients are there, %d are tested", len(found), len(examples))
	}
}
