package diagnosis_test

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/diagnosis"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestFaultNamesSourceReasonAndRemedy(t *testing.T) {
	_, parse := config.ParseText("r/m/config.pbtxt", []byte("backend: \"python\"\ninput { data_type: TYPE_BYTES }"))
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"config that cannot be parsed", parse, "m: r/m/config.pbtxt:2:20: invalid value for enum type: TYPE_BYTES; use TYPE_STRING for strings and bytes"},
		{"config that is refused", infer.Errorf(infer.InvalidArg, "version 1 is at UNAVAILABLE state: Invalid argument: model input 'A' must specify 'dims' for m;"),
			"m: r/m/config.pbtxt: Invalid argument: model input 'A' must specify 'dims' for m; dims are the shape without the batch dimension, such as dims: [ 4 ], with -1 for any size"},
		{"exception", infer.Errorf(infer.InvalidArg, "version 3 is at UNAVAILABLE state: Internal: ValueError: no\n\nAt:\n  /x/model.py(12): initialize\n  /y.py(1): f\n;"),
			"m: /x/model.py:12: Internal: ValueError: no"},
		{"reason of two lines", errors.New("TypeError: __init__(): incompatible constructor arguments. The following argument types are supported:\n    1. T(name: str)\n\nInvoked with: 1\n\nAt:\n  /x/model.py(12): execute\n"),
			"m: /x/model.py:12: TypeError: __init__(): incompatible constructor arguments. The following argument types are supported: 1. T(name: str)"},
		{"reason with a colon at its end", errors.New("ValueError: no:\n\nAt:\n  /x/model.py(12): execute\n"), "m: /x/model.py:12: ValueError: no:"},
		{"syntax", infer.Errorf(infer.InvalidArg, "version 3 is at UNAVAILABLE state: Internal: SyntaxError: invalid syntax (model.py, line 7);"),
			"m: r/m/3/model.py:7: Internal: SyntaxError: invalid syntax"},
		{"syntax of another file", infer.Errorf(infer.InvalidArg, "version 3 is at UNAVAILABLE state: Internal: SyntaxError: invalid syntax (b.py, line 7)\n\nAt:\n  r/m/3/model.py(2): <module>\n;"),
			"m: r/m/3/model.py:2: Internal: SyntaxError: invalid syntax (b.py, line 7)"},
		{"too slow", &infer.Error{Message: "Stub process 'm_0' is not healthy.", Detail: "Stub process 'm_0' is not healthy. Cause: process did not initialize its model within 1m0s"},
			"m: r/m/config.pbtxt: Stub process 'm_0' is not healthy. Cause: process did not initialize its model within 1m0s; give it more time with initialize-timeout-seconds of --backend-config; 0 is no limit"},
		{"no class", infer.Errorf(infer.InvalidArg, "version 3 is at UNAVAILABLE state: Internal: AttributeError: module '3.model' has no attribute 'TritonPythonModel';"),
			"m: r/m/3/model.py: Internal: AttributeError: module '3.model' has no attribute 'TritonPythonModel'; the server creates an instance of that class: define class TritonPythonModel: with def execute(self, requests)"},
		{"no numpy", infer.Errorf(infer.Internal, "python-executable /p: /p: ModuleNotFoundError: No module named 'numpy'; install numpy with `/p -m pip install numpy`"),
			"m: python-executable /p: /p: ModuleNotFoundError: No module named 'numpy'; install numpy with `/p -m pip install numpy`"},
		{"no model", infer.Errorf(infer.InvalidArg, "at least one version must be available under the version policy of model 'm'"),
			"m: r/m/config.pbtxt: at least one version must be available under the version policy of model 'm'; a model needs a directory for each version, such as r/m/1, with the model.py, or empty for an ensemble; if this is not a model, move it out of the repository"},
		{"spelling", infer.Errorf(infer.InvalidArg, "unable to find backend library for backend 'pyton', try specifying runtime on the model configuration. Did you mean 'python'?"),
			"m: r/m/config.pbtxt: unable to find backend library for backend 'pyton', try specifying runtime on the model configuration. Did you mean 'python'?"},
		{"ensemble without a step", infer.Errorf(infer.InvalidArg, "ensemble scheduling must be set for ensemble m whose platform is ensemble"),
			"m: r/m/config.pbtxt: ensemble scheduling must be set for ensemble m whose platform is ensemble; ensemble_scheduling { step [ … ] } lists the composing models"},
		{"another error", errors.New("disk"), "m: r/m/config.pbtxt: disk"},
	} {
		if got := diagnosis.Of("m", "r/m", "r/m/config.pbtxt", c.err).String(); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	if got, want := diagnosis.OfVersion("m", 3, "r/m", errors.New("SyntaxError: invalid syntax (model.py, line 7)")).Why(), "r/m/3/model.py:7: SyntaxError: invalid syntax"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := diagnosis.Of("1", "/mnt/models/1", "/mnt/models/1/config.pbtxt", infer.Errorf(infer.InvalidArg, "Invalid model name: Could not determine backend for model '1' with no backend in model configuration.")).String(),
		"1: /mnt/models/1/config.pbtxt: Invalid model name: Could not determine backend for model '1' with no backend in model configuration; a directory with a number is a version: if /mnt/models is a model, use the directory above it as the repository, also in KServe's storageUri"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := diagnosis.Of("m", "", "", infer.Errorf(infer.NotFound, "failed to poll model 'm': model not found in any model repository.")).String(),
		"m: failed to poll model 'm': model not found in any model repository; a model is found by the name of its directory"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFirstConfigCanBeCopied checks that FirstConfig finds the tensor names in a model.py and
// returns a config that can be parsed.
func TestFirstConfigCanBeCopied(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"", `backend: "python" input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]`},
		{
			`a = pb_utils.get_input_tensor_by_name(request, "A"); b = pb_utils.get_input_tensor_by_name(request, 'B')` + "\n" +
				`a = pb_utils.get_input_tensor_by_name(r, "A"); return pb_utils.Tensor( "SUM", a + b), pb_utils.Tensor(name, x)`,
			`backend: "python" input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ] ` +
				`output [ { name: "SUM" data_type: TYPE_FP32 dims: [ -1 ] } ]`,
		},
	} {
		got := diagnosis.FirstConfig([]byte(c.source))
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if _, err := config.ParseText("p", []byte(got)); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
}
