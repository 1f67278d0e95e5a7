package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// asksByName makes a BLS request to the model named by its input and returns the result.
const asksByName = `
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.ask(r.inputs()[0].as_numpy()[0].decode()) for r in requests]

    def ask(self, name):
        answer = pb_utils.InferenceRequest(
            model_name=name, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", np.zeros(1, np.int64))]).exec()
        told = answer.error().message() if answer.has_error() else str(answer.output_tensors()[0].as_numpy()[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([told.encode()], np.object_))])
`

// asksByNameConfig is the config of asksByName.
const asksByNameConfig = `backend: "python"
input [ { name: "NAME" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// namesakes returns the files of two repositories. Each has a model "m", an ensemble "e" of it, and
// a model "only_…" that the other repository lacks. The generation is 1 in left and 2 in right.
func namesakes() map[string]string {
	files := map[string]string{}
	for generation, side := range map[string]string{"1": "left", "2": "right"} {
		other := map[string]string{"left": "right", "right": "left"}[side]
		for path, text := range lifeFiles([]string{"m", "only_" + side}, map[string]string{
			"e": "m", side + "_e": "m", side + "_nested": "e", side + "_beyond": "only_" + other,
		}) {
			files[side+"/"+path] = text
		}
		asks := side + "/" + side + "_asks"
		files[side+"/m/1/generation"], files[side+"/only_"+side+"/1/generation"] = generation, generation+"0"
		files[asks+"/config.pbtxt"], files[asks+"/1/model.py"] = asksByNameConfig, asksByName
	}
	return files
}

// TestNamespacesKeepRepositoriesApart serves two repositories with models of the same names.
// Requests for a name in both must be rejected, and each ensemble must use the models of its own
// repository.
func TestNamespacesKeepRepositoriesApart(t *testing.T) {
	testkit.Story(t)
	root := writeFiles(t, namesakes())
	left, right := filepath.Join(root, "left"), filepath.Join(root, "right")
	flags := []string{"--model-namespacing=true", "--model-repository=" + right}
	t.Run("at start", func(t *testing.T) {
		s := start(t, testkit.Python(t).Path, left, flags...)
		s.runClient("namespaces.py", "served")
		for _, side := range []string{left, right} { // two ensembles, each called twice by a client and four times by models
			s.until("counted", func() bool {
				page := s.scrape()
				return strings.Contains(page, fmt.Sprintf("nereid_instance_resident_bytes{instance_name=\"m_0\",model=\"m\",namespace=%q,version=\"1\"} ", side)) &&
					strings.Contains(page, fmt.Sprintf("nv_inference_request_success{model=\"m\",namespace=%q,version=\"1\"} 12\n", side))
			})
		}
	})
	t.Run("asked for", func(t *testing.T) {
		s := start(t, testkit.Python(t).Path, left, append(flags, "--model-control-mode=explicit", "--load-model=only_left")...)
		s.runClient("namespaces.py", "asked_for")
	})
	t.Run("without", func(t *testing.T) {
		s := launch(t, testkit.Python(t).Path, left, "--exit-on-error=false", "--strict-readiness=false", "--model-repository="+right)
		s.waitReady()
		s.runClient("namespaces.py", "without")
	})
}
