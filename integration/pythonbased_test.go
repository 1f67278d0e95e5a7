package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// basedModel is the model.py of a Python-based backend. It reports its arguments and its
// environment.
const basedModel = `
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils
import helper


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def initialize(self, args):
        self.args = args
        with open(os.path.join(pb_utils.get_model_dir(), "weights")) as f:
            self.weights = f.read()

    def execute(self, requests):
        seen = {
            "Name": __name__, "Package": __package__, "File": __file__, "Path": sys.path, "Directory": pb_utils.get_model_dir(),
            "Repository": self.args["model_repository"], "Keys": sorted(self.args), "Weights": self.weights, "Helper": helper.NAME,
            "Runtime": json.loads(self.args["model_config"])["runtime"], "Python": "%d.%d" % sys.version_info[:2],
        }
        out = pb_utils.Tensor("OUTPUT0", np.array([json.dumps(seen).encode()], object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
`

type basedSeen struct {
	Name, Package, File, Directory, Repository, Weights, Helper, Runtime, Python string
	Path, Keys                                                                   []string
}

func (s *runningServer) seen(path string) basedSeen {
	s.t.Helper()
	status, body := s.request("POST", path+"/infer", fmt.Sprintf(inferBody, 1))
	var answer struct {
		Outputs []struct{ Data []string }
	}
	var seen basedSeen
	if status != http.StatusOK || json.Unmarshal([]byte(body), &answer) != nil || json.Unmarshal([]byte(answer.Outputs[0].Data[0]), &seen) != nil {
		s.t.Fatalf("%s: status %d: %s", path, status, body)
	}
	return seen
}

// TestPythonBasedBackendsRunTheirOwnModel loads models and versions on two Python-based backends
// with different Pythons. Each model must run the model.py of its backend, and invalid backends
// must fail their loads.
func TestPythonBasedBackendsRunTheirOwnModel(t *testing.T) {
	pythons := oldestAndNewest(t)
	oldest, newest := pythons[0], pythons[len(pythons)-1]
	backends := writeFiles(t, map[string]string{
		"llm/model.py": basedModel, "llm/helper.py": "NAME = 'llm'\n",
		"old/model.py": basedModel, "old/helper.py": "NAME = 'old'\n",
		"broken/model.py": "raise ValueError('broken backend')\n",
	})
	root := writeFiles(t, map[string]string{
		"first/config.pbtxt": "backend: \"llm\"\nversion_policy { all { } }", "first/1/weights": "first, 1", "first/2/weights": "first, 2",
		"first/2/helper.py":   "NAME = 'of the model, which is not searched'\n",
		"second/config.pbtxt": "backend: \"llm\"\nruntime: \"model.py\"\ninstance_group [ { count: 2 } ]", "second/1/weights": "second",
		"third.old/1/weights": "third",
		"plain/config.pbtxt":  oneFloat, "plain/1/model.py": executing("pass"),
		"failing/config.pbtxt": "backend: \"broken\"", "failing/1/weights": "",
		"missing/config.pbtxt": "backend: \"missing\"\nruntime: \"model.py\"", "missing/1/weights": "",
		"unknown/config.pbtxt": "backend: \"missing\"", "unknown/1/weights": "",
	})
	s := launch(t, newest.Path, root, "--backend-directory="+backends, "--backend-config=old,python-executable="+oldest.Path,
		"--exit-on-error=false", "--strict-readiness=false")
	s.waitReady()
	for path, want := range map[string]basedSeen{
		"/v2/models/first/versions/1": {Weights: "first, 1", Helper: "llm", Repository: root + "/first", Directory: root + "/first/1"},
		"/v2/models/first":            {Weights: "first, 2", Helper: "llm", Repository: root + "/first", Directory: root + "/first/2"},
		"/v2/models/second":           {Weights: "second", Helper: "llm", Repository: root + "/second", Directory: root + "/second/1"},
		"/v2/models/third.old":        {Weights: "third", Helper: "old", Repository: root + "/third.old", Directory: root + "/third.old/1"},
	} {
		got := s.seen(path)
		code := backends + "/" + want.Helper
		want.Name, want.File, want.Runtime = "model", code+"/model.py", "model.py"
		want.Python = fmt.Sprintf("3.%d", newest.Minor)
		if want.Helper == "old" {
			want.Python = fmt.Sprintf("3.%d", oldest.Minor)
		}
		if got.Path[0] != "" || got.Path[len(got.Path)-2] != code || slices.Contains(got.Path, want.Directory) || slices.Contains(got.Path, want.Repository) {
			t.Errorf("%s: got sys.path %q, want the backend's directory last but one, and none of the model's", path, got.Path)
		}
		if len(got.Keys) != 7 {
			t.Errorf("%s: got args %q, want seven", path, got.Keys)
		}
		got.Path, got.Keys = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
	if status, body := s.infer("plain", 4); status != http.StatusOK {
		t.Errorf("a plain model: status %d: %s", status, body)
	}
	_, config := s.request("GET", "/v2/models/first/config", "")
	if !strings.Contains(config, `"backend":"llm","runtime":"model.py"`) {
		t.Errorf("config has no runtime: %s", config)
	}
	_, metadata := s.request("GET", "/v2/models/first", "")
	if !strings.Contains(metadata, `"platform":"llm"`) {
		t.Errorf("metadata: %s", metadata)
	}
	index := s.index()
	for name, want := range map[string]string{
		"failing": "Internal: ValueError: broken backend\n\nAt:\n  " + backends + "/broken/model.py(1): <module>\n",
		"missing": "Invalid argument: unable to find Python backend based backend library 'model.py' for model 'missing', searched: '" + backends + "/missing/model.py'",
		"unknown": "Invalid argument: unable to find backend library for backend 'missing', try specifying runtime on the model configuration.",
	} {
		if got := index[name].Reason; !strings.HasPrefix(got, want) {
			t.Errorf("%s: got reason %q, want %q", name, got, want)
		}
	}
	for _, cell := range []string{"| llm ", "| old ", "| python "} {
		if s.printed(cell, 1) != 1 {
			t.Errorf("the table of backends has not one row %q", cell)
		}
	}
	if want := backends + "/llm/model.py "; !s.prints(want) {
		t.Errorf("the table of backends has no %q", want)
	}
}
