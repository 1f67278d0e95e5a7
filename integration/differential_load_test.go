package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// loadConfig is the config of most models here. They report how they were loaded.
const loadConfig = `
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// tells returns a model that responds with the value of an expression.
func tells(expression, before, methods string) string {
	return before + `
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
` + indented(methods) + `
    def execute(self, requests):
        seen = ` + expression + `
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", np.array([json.dumps(seen)], object))]) for _ in requests]
`
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// completes returns a model with the given body of auto_complete_config.
func completes(body string) string {
	return tells("1", "", "@staticmethod\ndef auto_complete_config(c):\n"+indented(body))
}

const addSeen = `
if "IN" not in [t["name"] for t in c.as_dict()["input"]]:
    c.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})
if "SEEN" not in [t["name"] for t in c.as_dict()["output"]]:
    c.add_output({"name": "SEEN", "data_type": "TYPE_STRING", "dims": [1]})
`

// loads are models by name, each with the files of its directory. The key "" is its 1/model.py.
var loads = map[string]map[string]string{
	// These models test auto_complete_config.
	"ac_nothing":        {"config.pbtxt": loadConfig, "": completes("return c")},
	"ac_alone":          {"": completes(addSeen + "return c")},
	"ac_batch":          {"": completes(addSeen + "c.set_max_batch_size(4)\nc.set_dynamic_batching()\nreturn c")},
	"ac_empty":          {"": completes("return c")},
	"ac_without_method": {"": "class TritonPythonModel:\n    pass\n"},
	"ac_same":           {"config.pbtxt": loadConfig, "": completes(addSeen + "return c")},
	"ac_emptied":        {"config.pbtxt": loadConfig, "": completes("c.as_dict()['input'] = []\nc.as_dict()['output'] = []\nreturn c")},
	"ac_others":         {"config.pbtxt": loadConfig, "": completes("c.as_dict()['parameters'] = {'a': {'string_value': 'b'}}\nc.as_dict()['instance_group'] = []\nreturn c")},
	"ac_optional":       {"config.pbtxt": loadConfig, "": completes("c.add_input({'name': 'IN', 'data_type': 'TYPE_FP32', 'dims': [1], 'optional': True})")},
	"ac_dims":           {"config.pbtxt": loadConfig, "": completes("c.add_input({'name': 'IN', 'data_type': 'TYPE_FP32', 'dims': [16]})")},
	"ac_type":           {"config.pbtxt": loadConfig, "": completes("c.add_output({'name': 'SEEN', 'data_type': 'TYPE_FP32', 'dims': [1]})")},
	"ac_property":       {"config.pbtxt": loadConfig, "": completes("c.add_input({'name': 'X', 'data_type': 'TYPE_FP32', 'dims': [1], 'y': 1})")},
	"ac_no_name":        {"config.pbtxt": loadConfig, "": completes("c.add_input({'data_type': 'TYPE_FP32', 'dims': [1]})")},
	"ac_key_error":      {"config.pbtxt": loadConfig, "": completes("c.add_input({'data_type': 'TYPE_FP32', 'dims': [1], 'z': 1})")},
	"ac_batch_smaller":  {"config.pbtxt": loadConfig + "max_batch_size: 4", "": completes("c.set_max_batch_size(3)")},
	"ac_none":           {"config.pbtxt": loadConfig, "": completes("pass")},
	"ac_no_json":        {"config.pbtxt": loadConfig, "": completes("c.as_dict()['x'] = {1}\nreturn c")},
	"ac_nan":            {"config.pbtxt": loadConfig, "": completes("c.as_dict()['x'] = float('nan')\nreturn c")},
	"ac_surrogate":      {"config.pbtxt": loadConfig, "": completes("c.as_dict()['x'] = '\\ud800'\nreturn c")},
	"ac_circle":         {"config.pbtxt": loadConfig, "": completes("c.as_dict()['x'] = c.as_dict()\nreturn c")},
	"ac_odd_dims":       {"": completes("c.add_input({'name': 'I', 'data_type': 'TYPE_FP32', 'dims': [0]})\nreturn c")},
	"ac_exits":          {"config.pbtxt": loadConfig, "": completes("sys.exit(4)")},
	"ac_raises":         {"config.pbtxt": loadConfig, "": completes("raise ValueError('é\\n2')")},
	"ac_signature":      {"config.pbtxt": loadConfig, "": strings.Replace(completes("return c"), "(c)", "()", 1)},
	"ac_not_static":     {"config.pbtxt": loadConfig, "": strings.Replace(completes("return c"), "@staticmethod", "", 1)},

	// These models test imports.
	"im_package": {
		"config.pbtxt": loadConfig, "1/pkg/__init__.py": "from .sub import value\n", "1/pkg/sub.py": "value = 5\n",
		"1/other.py": "from .pkg.sub import value\nfrom . import model\n",
		"": tells("[value, other.value, other.model is sys.modules[__name__], pkg.value, pkg.__name__, other.__name__, __name__, __package__]",
			"from . import other\nfrom .pkg import value\nimport pkg", ""),
	},
	"im_order": {
		"config.pbtxt": loadConfig, "both.py": "w = 'model'\n", "above.py": "w = 'model'\n", "1/both.py": "w = 'version'\n", "1/colorsys.py": "w = 'version'\n",
		"": tells("[both.w, above.w, hasattr(colorsys, 'w'), sys.path[0], sys.path[-3:-1] == [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]]",
			"import both, above, colorsys", ""),
	},
	"im_second": {
		"config.pbtxt": loadConfig, "1/sib.py": "import model\n",
		"": strings.Replace(tells("[sib.model is sys.modules['model'], sib.model is sys.modules[__name__]]", "", ""), "seen =", "import sib\n        seen =", 1),
	},
	"im_main": {"config.pbtxt": loadConfig, "": tells("[sys.modules['__main__'].__name__, hasattr(sys.modules['__main__'], '__file__'), sys.argv]", "", "")},
	"im_pickle": {"config.pbtxt": loadConfig, "": tells("[pickle.loads(pickle.dumps(Thing())).v, Thing.__module__, inspect.getsource(Thing).splitlines()[0]]",
		"import inspect, pickle\nclass Thing:\n    v = 3\n", "")},
	"im_unittest": {"config.pbtxt": loadConfig, "": tells("(lambda r: [r.testsRun, r.wasSuccessful()])(unittest.main('model', exit=False, argv=['x']).result)",
		"import unittest\nclass Tests(unittest.TestCase):\n    def test_it(self): pass\n", "")},
	"im_deep":      {"config.pbtxt": loadConfig, "1/deep.py": "import nothing_here\n", "": "from . import deep\n"},
	"im_raises":    {"config.pbtxt": loadConfig, "1/deep.py": "raise RuntimeError('é')\n", "": "import deep\n"},
	"im_syntax":    {"config.pbtxt": loadConfig, "": "def f(:\n"},
	"im_indent":    {"config.pbtxt": loadConfig, "": "class A:\npass\n"},
	"im_no_class":  {"config.pbtxt": loadConfig, "": "x = 1\n"},
	"im_no_python": {"config.pbtxt": loadConfig + `default_model_filename: "model.txt"`, "1/model.txt": ""},
	"im_dotted":    {"config.pbtxt": loadConfig + `default_model_filename: "my.model.py"`, "1/my.model.py": tells("1", "", "")},

	// These models test variants of the class.
	"cl_function": {"config.pbtxt": loadConfig, "": strings.Replace(tells("1", "", ""), "TritonPythonModel", "Hidden", 1) +
		"\ndef TritonPythonModel():\n    return Hidden()\n"},
	"cl_number":      {"config.pbtxt": loadConfig, "": "TritonPythonModel = 5\n"},
	"cl_constructor": {"config.pbtxt": loadConfig, "": tells("1", "", "def __init__(self, x): pass")},
	"cl_args": {"config.pbtxt": loadConfig, "": tells("[sorted(self.a.items()), type(self.a).__name__]", "",
		"def initialize(self, args):\n    self.a = {k: v for k, v in args.items() if k != 'model_config'}")},
	"cl_signature":  {"config.pbtxt": loadConfig, "": tells("1", "", "def initialize(self): pass")},
	"cl_coroutine":  {"config.pbtxt": loadConfig, "": tells("vars(self)", "", "async def initialize(self, args):\n    self.x = 1")},
	"cl_attribute":  {"config.pbtxt": loadConfig, "": tells("1", "", "initialize = 5")},
	"cl_raises":     {"config.pbtxt": loadConfig, "": tells("1", "", "def initialize(self, args):\n    1 / 0\ndef finalize(self):\n    print('FINALIZED', flush=True)")},
	"cl_exits":      {"config.pbtxt": loadConfig, "": tells("1", "", "def initialize(self, args):\n    sys.exit(3)")},
	"cl_interrupt":  {"config.pbtxt": loadConfig, "": tells("1", "", "def initialize(self, args):\n    raise KeyboardInterrupt")},
	"cl_chained":    {"config.pbtxt": loadConfig, "": tells("1", "", "def initialize(self, args):\n    try:\n        1 / 0\n    except Exception as e:\n        raise RuntimeError('outer') from e")},
	"cl_no_message": {"config.pbtxt": loadConfig, "": tells("1", "", "def initialize(self, args):\n    raise Exception")},
	"cl_no_text":    {"config.pbtxt": loadConfig, "": tells("1", "class E(Exception):\n    def __str__(self): raise ValueError\n", "def initialize(self, args):\n    raise E()")},
	"cl_threads": {"config.pbtxt": loadConfig, "": tells("[threading.current_thread() is threading.main_thread(), self.m]", "import threading",
		"def initialize(self, args):\n    self.m = threading.current_thread() is threading.main_thread()")},
	"cl_finalize": {"config.pbtxt": loadConfig, "": tells("1", "", "def finalize(self, args): pass")},

	// These models use Python-based backends.
	"pb_based":       {"config.pbtxt": `backend: "based"`, "1/data": ""},
	"pb_runtime":     {"config.pbtxt": `backend: "based" runtime: "model.py"`, "1/data": ""},
	"pb_versions":    {"config.pbtxt": `backend: "based" version_policy { all { } }`, "1/data": "", "2/data": ""},
	"pb_file":        {"config.pbtxt": `backend: "based" default_model_filename: "weights.bin"`, "1/data": "", "": "raise 1"},
	"pb_name.based":  {"1/data": ""},
	"pb_none":        {"config.pbtxt": `backend: "none"`, "1/data": ""},
	"pb_none_script": {"config.pbtxt": `backend: "none" runtime: "model.py"`, "1/data": ""},
	"pb_empty":       {"config.pbtxt": `backend: "empty"`, "1/data": ""},
	"pb_library":     {"config.pbtxt": `backend: "based" runtime: "lib.so"`, "1/data": ""},
	"pb_python_lib":  {"config.pbtxt": loadConfig + `runtime: "libtriton_python.so"`, "": tells("[__name__]", "", "")},
	"pb_python_name": {"config.pbtxt": loadConfig + `runtime: "libfoo.so"`, "": ""},
	"pb_python_file": {"config.pbtxt": loadConfig + `runtime: "model.py"`, "": ""},
	"pb_escape":      {"config.pbtxt": `backend: "based" runtime: "../based/model.py"`, "1/data": ""},
}

// loadsDiffer gives the reason why a model of loads may load differently than in Triton.
var loadsDiffer = map[string]string{
	"pb_escape": "later releases of Triton refuse a runtime that leaves the directory",
}

// helperFrames are the lines of Triton's own Python files in the text of an exception. Nereid hides
// its own.
var helperFrames = regexp.MustCompile(`  [^\n]*/triton_python_backend_utils\.py\(\d+\): \w+\n`)

// TestLoadsSameAsTriton loads the same models on Triton and on this server. Loaded models must have
// the same config and the same response. Failed loads must have the same reason.
func TestLoadsSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	files := map[string]string{}
	for name, model := range loads {
		for path, text := range model {
			if path == "" {
				path = "1/model.py"
			}
			files[name+"/"+path] = text
		}
	}
	backends := writeFiles(t, map[string]string{
		"based/model.py": tells("[__name__, __package__, __file__, pb_utils.get_model_dir(), sorted(self.args), self.args['model_repository'], sys.path[0], sys.path.count(os.path.dirname(__file__)), helper.NAME]",
			"import helper", "@staticmethod\ndef auto_complete_config(c):\n"+indented(addSeen+"return c")+"\n\ndef initialize(self, args):\n    self.args = args"),
		"based/helper.py": "NAME = 'helper'\n", "empty/other.py": "",
	})
	if err := os.Symlink(filepath.Join(dir, "backends", "python"), filepath.Join(backends, "python")); err != nil {
		t.Fatal(err)
	}
	root := writeFiles(t, files)
	flags := []string{"--backend-directory=" + backends, "--exit-on-error=false", "--strict-readiness=false"}
	triton := startTriton(t, dir, root, flags...)
	nereid := launch(t, "/usr/bin/python3", root, flags...)
	nereid.waitReady()
	loaded := func(s *runningServer, name string) bool {
		switch s.index()[name].State {
		case "READY", "UNAVAILABLE":
			return true
		}
		return false
	}
	ready := 0
	for name := range loads {
		if reason, ok := loadsDiffer[name]; ok {
			t.Logf("%s may differ: %s", name, reason)
			continue
		}
		if !testkit.Within(startLimit, func() bool { return loaded(triton, name) && loaded(nereid, name) }) {
			t.Errorf("%s: neither loaded nor refused: Triton %+v, Nereid %+v", name, triton.index()[name], nereid.index()[name])
			continue
		}
		want, got := triton.index()[name], nereid.index()[name]
		want.Reason = helperFrames.ReplaceAllString(want.Reason, "")
		if got != want {
			t.Errorf("%s:\n   Triton: %+v\n   Nereid: %+v", name, want, got)
			continue
		}
		if got.State != "READY" {
			continue
		}
		ready++
		_, wantConfig := triton.request("GET", "/v2/models/"+name+"/config", "")
		_, gotConfig := nereid.request("GET", "/v2/models/"+name+"/config", "")
		if !sameJSON(t, wantConfig, gotConfig) {
			t.Errorf("%s: config\n   Triton: %s\n   Nereid: %s", name, wantConfig, gotConfig)
		}
		shape := "[1]"
		if strings.Contains(gotConfig, `"max_batch_size":4`) {
			shape = "[1,1]"
		}
		body := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"FP32","shape":%s,"data":[1]}]}`, shape)
		wantStatus, wantSeen := triton.request("POST", "/v2/models/"+name+"/infer", body)
		gotStatus, gotSeen := nereid.request("POST", "/v2/models/"+name+"/infer", body)
		if wantStatus != gotStatus || gotStatus == http.StatusOK && wantSeen != gotSeen {
			t.Errorf("%s: answers\n   Triton: %d %s\n   Nereid: %d %s", name, wantStatus, wantSeen, gotStatus, gotSeen)
		}
	}
	if ready < 20 {
		t.Errorf("%d models came up, want at least 20", ready)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var trees [2]any
	for i, text := range []string{a, b} {
		if err := json.Unmarshal([]byte(text), &trees[i]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return fmt.Sprint(trees[0]) == fmt.Sprint(trees[1])
}
