package integration

import (
	"strings"
	"testing"
)

// writtenModel returns the value in its source. It records each load in a file beside the
// repository.
const writtenModel = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils
from . import beside

VALUE = 1


class TritonPythonModel:
    def initialize(self, args):
        name = args["model_name"] + "." + args["model_version"]
        with open(os.path.join(args["model_repository"], "..", "..", "loads"), "a") as f:
            f.write(name + "=" + str(VALUE) + "\n")
        beside.check(VALUE)

    def execute(self, requests):
        answer = np.array([VALUE], np.int64)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]) for _ in requests]
`

// besideWritten is a module that writtenModel imports.
const besideWritten = `
def check(value):
    if value < 0:
        raise ValueError("what is below zero cannot be loaded")
`

// TestPollsDisturbNoClient changes a repository in every way that polling supports, while clients
// use its models, an ensemble and a model that makes BLS requests. Only requests to removed models
// may fail.
func TestPollsDisturbNoClient(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"models/e/config.pbtxt": ensembleOf("m"), "models/e/1/placeholder": ""}
			for _, name := range []string{"m", "steady", "gone", "clock"} {
				files["models/"+name+"/config.pbtxt"] = stormConfig
				files["models/"+name+"/1/model.py"], files["models/"+name+"/1/beside.py"] = writtenModel, besideWritten
			}
			files["models/asks/config.pbtxt"] = asksByNameConfig
			files["models/asks/1/model.py"] = asksByName
			root := writeFiles(t, files)
			s := start(t, python.Path, root+"/models", "--model-control-mode=poll", "--repository-poll-secs=1")
			s.runClient("polls.py", root)
			failed, broken := strings.Count(s.log.String(), "failed to load '"), strings.Count(s.log.String(), "failed to load 'm'")
			if failed != broken || broken == 0 {
				t.Errorf("%d loads failed, %d of them of what cannot be loaded, want no others", failed, broken)
			}
		})
	}
}
