package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// identityModel returns its inputs.
const identityModel = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(t.name().replace("INPUT", "OUTPUT"), t.as_numpy()) for t in request.inputs()]
            )
            for request in requests
        ]
`

var dataTypes = []string{
	"BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64", "STRING",
}

// identityRepository creates a model for each rank, with an optional input and an output of each
// data type.
func identityRepository(t *testing.T) string {
	files := map[string]string{
		"scalar/config.pbtxt": `
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
`,
		"scalar/1/model.py": `
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array(r.inputs()[0].as_numpy()[0]))])
            for r in requests
        ]
`,
	}
	for _, rank := range []int{1, 3, 5} {
		var config strings.Builder
		config.WriteString("backend: \"python\"\ninstance_group [ { count: 2 kind: KIND_CPU } ]\n")
		dims := strings.TrimSuffix(strings.Repeat("-1, ", rank), ", ")
		for _, dataType := range dataTypes {
			fmt.Fprintf(&config, "input [ { name: \"INPUT_%[1]s\" data_type: TYPE_%[1]s dims: [ %[2]s ] optional: true } ]\n", dataType, dims)
			fmt.Fprintf(&config, "output [ { name: \"OUTPUT_%[1]s\" data_type: TYPE_%[1]s dims: [ %[2]s ] } ]\n", dataType, dims)
		}
		files[fmt.Sprintf("identity_%d/config.pbtxt", rank)] = config.String()
		files[fmt.Sprintf("identity_%d/1/model.py", rank)] = identityModel
	}
	return writeFiles(t, files)
}

// oldestAndNewest returns the oldest and the newest supported Python.
func oldestAndNewest(t *testing.T) []testkit.Interpreter {
	pythons := testkit.Pythons(t)
	if len(pythons) == 1 {
		return pythons
	}
	return []testkit.Interpreter{pythons[0], pythons[len(pythons)-1]}
}

func TestRealClientsAreServed(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, identityRepository(t))
			s.runClient("clients.py")
		})
	}
}

// TestClientsWithNamedRegions checks that clients work with named regions too, and that no name is
// left in /dev/shm.
func TestClientsWithNamedRegions(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Python(t).Path, identityRepository(t), "--backend-config=python,shm-region-prefix-name="+regionPrefix)
	if n := sharedMemoryNames(t); n != 0 {
		t.Errorf("%d names are in /dev/shm although all stubs have attached", n)
	}
	s.runClient("clients.py")
}

// TestClientsAreServedWithoutTemplate checks that clients are served by stubs that start as
// separate programs instead of forks of the template.
func TestClientsAreServedWithoutTemplate(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Python(t).Path, identityRepository(t), "--backend-config=python,stub-template=off")
	s.runClient("clients.py")
}
