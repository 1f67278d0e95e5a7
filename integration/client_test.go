package integration

import (
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const identityModel = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())]))
        return responses
`

// identityConfig is a config of a model with INPUT0 and OUTPUT0 of one type.
func identityConfig(dataType string, more string) string {
	return fmt.Sprintf(`
backend: "python"
input [ { name: "INPUT0" data_type: %[1]s dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: %[1]s dims: [ -1 ] } ]
%[2]s
`, dataType, more)
}

var dataTypes = []string{
	"BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64",
}

// identityRepository has one identity model for each data type, which takes
// any shape.
func identityRepository(t *testing.T) string {
	files := map[string]string{}
	anyShape := func(name, dataType string) {
		files[name+"/config.pbtxt"] = fmt.Sprintf(`
backend: "python"
input [ { name: "INPUT0" data_type: %[1]s dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: %[1]s dims: [ -1 ] } ]
`, dataType)
		files[name+"/1/model.py"] = identityModel
	}
	_ = anyShape
	return writeFiles(t, files)
}

func TestClients(t *testing.T) {
	pythons := testkit.Pythons(t)
	chosen := []testkit.Interpreter{pythons[0]}
	if len(pythons) > 1 {
		chosen = append(chosen, pythons[len(pythons)-1])
	}
	for _, python := range chosen {
		t.Run(python.String(), func(t *testing.T) {
			s := start(t, python.Path, identityRepository(t))
			s.runClient("clients.py")
		})
	}
}
