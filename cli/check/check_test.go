package check_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/check"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestMistakesInFilesAreReportedInOneLine checks that each mistake in a model's files is reported
// in one line.
func TestMistakesInFilesAreReportedInOneLine(t *testing.T) {
	good := map[string]string{"good/config.pbtxt": check.Two, "good/1/model.py": check.Script}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // in order, without the last line, which has the counts
	}{
		{"nothing", nil, nil},
		{"an unknown field", map[string]string{"m/config.pbtxt": "backend: \"python\"\n  inputs { }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:2:3: error: unknown field: inputs; did you mean input?"}},
		{"no dims", map[string]string{"m/config.pbtxt": "backend: \"python\"\n# 'A'\ninput {\n  name: \"A\" data_type: TYPE_FP32 }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: error: model input 'A' must specify 'dims' for m; dims are the shape without the batch dimension, such as dims: [ 4 ], with -1 for any size"}},
		{"a bad field", map[string]string{"m/config.pbtxt": check.Two + "max_batch_size: -1\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: error: 'max_batch_size' must be non-negative value for m"}},
		{"a backend", map[string]string{"m/config.pbtxt": "backend: \"pyton\"\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:1: error: unable to find backend library for backend 'pyton', try specifying runtime on the model configuration. Did you mean 'python'?"}},
		{"no version", map[string]string{"m/config.pbtxt": check.Two, "m/one/model.py": check.Script}, []string{
			"m: warning: ignore version directory 'one' which fails to convert to integral number; version directories are named 1, 2, 3, …",
			"m/config.pbtxt: error: at least one version must be available under the version policy of model 'm'; " +
				"a model needs a directory for each version, such as m/1 with the model.py; if this is not a model, move it out of the repository",
		}},
		{"an ensemble without a version", map[string]string{"m/config.pbtxt": check.Chain},
			[]string{"m/config.pbtxt: error: at least one version must be available under the version policy of model 'm'; an ensemble needs an empty version directory as well: create m/1"}},
		{"a script without a version", map[string]string{"m/config.pbtxt": check.Two, "m/model.py": check.Script},
			[]string{"m/config.pbtxt: error: at least one version must be available under the version policy of model 'm'; move m/model.py to m/1/model.py"}},
		{"a script that cannot be parsed", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": check.Script + "x = (\n", "m/2/model.py": "x = 1\nx = = 2\n"},
			[]string{"m/2/model.py:2:5: error: SyntaxError: invalid syntax"}},
		{"a script of another name", map[string]string{"m/config.pbtxt": check.Two + "default_model_filename: \"run.py\"\n", "m/1/model.py": check.Script},
			[]string{"m/1: error: there is no run.py in the directory of version 1; there is m/1/model.py: rename it, or remove default_model_filename"}},
		{"a script alone", map[string]string{"m/model.py": check.Script}, []string{
			"m: error: Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. Expected model name of the form 'model.<backend_name>'; " +
				"move m/model.py to m/1/model.py",
		}},
		{"a version that is not there", map[string]string{"m/config.pbtxt": check.Two + "version_policy { specific { versions: [ 1, 3 ] } }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: warning: version 3 is specified for model 'm', but the version directory is not present"}},
		{"versions that are not there", map[string]string{"m/config.pbtxt": check.Two + "version_policy { specific { versions: [ 3 ] } }\n", "m/1/model.py": check.Script, "m/10/model.py": check.Script, "m/2/model.py": check.Script}, []string{
			"m/config.pbtxt:4: error: at least one version must be available under the version policy of model 'm'; version_policy selects none of the existing versions: 1, 2, 10",
			"m/config.pbtxt:4: warning: version 3 is specified for model 'm', but the version directory is not present",
		}},
		{"two outputs of a name", map[string]string{"m/config.pbtxt": strings.Replace(check.Two, `"A"`, `"B"`, 1) + "output {\n  # name: \"B\"\n  name: \"B\" data_type: TYPE_FP32 dims: [ 2 ] }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:6: warning: there are several tensors 'B' among the outputs; names must be unique: rename one, or remove it"}},
		{"two inputs of a name", map[string]string{"m/config.pbtxt": check.Two + "input [\n  { name: \"A\" data_type: TYPE_FP32 dims: [ 2 ] } ]\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:5: warning: there are several tensors 'A' among the inputs; names must be unique: rename one, or remove it"}},
		{"a count below 0", map[string]string{"m/config.pbtxt": check.Two + "instance_group [\n  { count: 2 kind: KIND_CPU },\n  { count: -2 kind: KIND_CPU } ]\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:6: warning: the group has the count -2: the server starts 1 instance; count is the number of instances, 1 or more"}},
		{"batches without a size", map[string]string{"m/config.pbtxt": check.Two + "dynamic_batching { max_queue_delay_microseconds: 100 }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: warning: dynamic_batching has no effect without max_batch_size; max_batch_size: 8 allows batches of 8; tensors of requests and of the model then begin with the batch dimension"}},
		{"a queue without batches", map[string]string{"m/config.pbtxt": check.Two + "dynamic_batching { default_queue_policy { max_queue_size: 4 } }\n", "m/1/model.py": check.Script}, nil},
		{"batches larger than the largest", map[string]string{"m/config.pbtxt": check.Two + "max_batch_size: 4\ndynamic_batching { preferred_batch_size: [ 8 ] }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:5: error: dynamic batching preferred size must be <= max batch size for m; raise max_batch_size, or lower preferred_batch_size"}},
		{"two ways of scheduling", map[string]string{"m/config.pbtxt": check.Two + "max_batch_size: 4\ndynamic_batching { }\nsequence_batching { }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:6:1: error: error parsing \"sequence_batching\", oneof inference.ModelConfig.scheduling_choice is already set; only one of dynamic_batching, sequence_batching, ensemble_scheduling is allowed: remove the others"}},
		{"dims of nothing", map[string]string{"m/config.pbtxt": strings.Replace(check.Two, "[ 2 ]", "[ 0 ]", 1), "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:2: error: model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m; dims: [ 4 ] is four elements, dims: [ -1 ] any number of them"}},
		{"a tensor without a name", map[string]string{"m/config.pbtxt": strings.Replace(check.Two, `name: "A" `, "", 1), "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:2: error: model input must specify 'name' for m; such as name: \"INPUT0\""}},
		{"a warm-up that is not sent", map[string]string{"m/config.pbtxt": check.Two + "model_warmup { name: \"w\"\n  inputs { key: \"X\" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } }\n", "m/1/model.py": check.Script}, []string{
			"m/config.pbtxt:4: warning: sample 'w' of model_warmup has no batch_size and is not sent; set batch_size: 1, also for models without batching",
			"m/config.pbtxt:5: warning: sample 'w' of model_warmup has 'X', which is not an input of the model; the inputs are A",
		}},
		{"a script beside the versions", map[string]string{"m/config.pbtxt": check.Two, "m/1/weights": "", "m/model.py": check.Script},
			[]string{"m/1: error: there is no model.py in the directory of version 1; there is m/model.py: move it into the directory"}},
		{"a script of another name", map[string]string{"m/config.pbtxt": check.Two, "m/1/models.py": check.Script},
			[]string{"m/1: error: there is no model.py in the directory of version 1; there is m/1/models.py: is that it?"}},
		{"no class", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": "# class TritonPythonModel\nclass Model:\n    pass\n"},
			[]string{"m/1/model.py: error: there is no class TritonPythonModel; the server creates an instance of that class: define class TritonPythonModel: with def execute(self, requests)"}},
		{"no execute", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": "class TritonPythonModel:\n    pass\n"},
			[]string{"m/1/model.py: error: the class TritonPythonModel has no method execute; add def execute(self, requests), which returns a list with one response per request"}},
		{"a class from elsewhere", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": "from mine import TritonPythonModel\n"}, nil},
		{"a class with a base", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": "class TritonPythonModel(Mine):\n    pass\n"}, nil},
		{"a config of another name", map[string]string{"m/config.pbtxt.txt": check.Two, "m/1/model.py": check.Script}, []string{
			"m: warning: the model has no inputs and no outputs, neither from config.pbtxt nor from an auto_complete_config: each request with an input is rejected; " +
				"nereid check m --write-config writes a first configuration",
			"m/config.pbtxt.txt: warning: the file is ignored; the configuration file is config.pbtxt, which does not exist: rename the file",
		}},
		{"an incomplete config", map[string]string{"m/config.pbtxt": "backend: \"python\"\ninput { name: \"A\" }\n", "m/1/model.py": check.Script + "\n    def auto_complete_config(c):\n        return c\n"},
			[]string{"m/config.pbtxt:2: warning: model input 'A' must specify 'data_type' for m; the model may complete it when it is loaded: check with --import"}},
		{"no labels", map[string]string{"m/config.pbtxt": strings.Replace(check.Two, "[ 2 ] }\n", "[ 2 ] }\n", 1) + "output { name: \"C\" data_type: TYPE_FP32 dims: [ 2 ] label_filename: \"l.txt\" }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: error: failed to open text file for read m/l.txt: No such file or directory; the path in the config is relative to the directory of the model"}},
		{"too many labels", map[string]string{"m/config.pbtxt": check.Two + "output { name: \"C\" data_type: TYPE_FP32 dims: [ 2 ] label_filename: \"l.txt\" }\n", "m/l.txt": "a\nb\nc\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: warning: l.txt has 3 lines, and output 'C' has 2 elements; each line is the label of one element, in order"}},
		{"an environment", map[string]string{"m/config.pbtxt": check.Two + "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"$$TRITON_MODEL_DIRECTORY/env.tar.gz\" } }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: error: Failed to get the canonical path for m/env.tar.gz. m has no env.tar.gz"}},
		{"data of a warm-up", map[string]string{"m/config.pbtxt": check.Two + "model_warmup { name: \"w\" batch_size: 1 inputs { key: \"A\" value { data_type: TYPE_FP32 dims: [ 2 ] input_data_file: \"raw\" } } }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: error: failed to run warmup sample 'w': "}},
		{"a step that is not there", map[string]string{"m/config.pbtxt": strings.ReplaceAll(check.Chain, "good", "goood"), "m/1/x": ""},
			[]string{"m/config.pbtxt:5: error: ensemble m contains models that are not available or ambiguous: goood; did you mean 'good'?"}},
		{"a tensor that is not there", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, `key: "A"`, `key: "X"`, 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:6: error: in ensemble m, ensemble tensor A is mapping to non-existing input X in model good; a key in an input_map is the name of an input of the step's model"}},
		{"tensors that do not match", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, "FP32 dims: [ 2 ] }\nens", "INT8 dims: [ 2 ] }\nens", 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:3: error: in ensemble m, ensemble tensor B: inconsistent data type: TYPE_INT8 is inferred from model m while TYPE_FP32 is inferred from model good; " +
				"the models that produce and consume a tensor must agree: change one of the configurations"}},
		{"an ensemble without steps", map[string]string{"m/config.pbtxt": check.Chain[:strings.Index(check.Chain, "ensemble_s")], "m/1/x": ""},
			[]string{"m/config.pbtxt:1: error: ensemble scheduling must be set for ensemble m whose platform is ensemble; ensemble_scheduling { step [ … ] } lists the composing models"}},
		{"a step without a model", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, "model_name: \"good\"", "", 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:6: error: must specify 'model_name' in step 0 of ensemble 'm'; model_name is the model that the step calls"}},
		{"an input that no step takes", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, `value: "A"`, `value: "q"`, 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:2: error: ensemble input 'A' for ensemble m' is not used; a step reads a tensor that is named as a value in its input_map; no step reads this one"}},
		{"an output that no step makes", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, `value: "B"`, `value: "q"`, 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:3: error: ensemble output 'B' for ensemble m' is not used; a step writes a tensor that is named as a value in its output_map; no step writes this one"}},
		{"a step that is missing", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, "step {", "step { model_name: \"good\" input_map { key: \"A\" value: \"u\" } output_map { key: \"B\" value: \"t\" } } step {", 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:4: error: ensemble tensor 't' is unused in ensemble 'm'; a tensor between steps must be a value in the output_map of one step and in the input_map of another"}},
		{"a step that nothing feeds", map[string]string{"m/config.pbtxt": strings.NewReplacer("step {", "step { model_name: \"good\" input_map { key: \"A\" value: \"A\" } output_map { key: \"B\" value: \"t\" } } step {", `key: "A" value: "A"`, `key: "A" value: "u"`).Replace(check.Chain), "m/1/x": ""},
			[]string{"m/config.pbtxt:3: error: output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'u', is not connected; no step writes that tensor: add it as a value to an output_map, or make it an input of the ensemble"}},
		{"instances of an ensemble", map[string]string{"m/config.pbtxt": check.Chain + "instance_group { count: 2 }\n", "m/1/x": ""},
			[]string{"m/config.pbtxt:8: error: instance group should not be specified for ensemble 'm'; only the composing models have instances: remove instance_group"}},
		{"a version of a step", map[string]string{"m/config.pbtxt": strings.Replace(check.Chain, "model_version: -1", "model_version: 7", 1), "m/1/x": ""},
			[]string{"m/config.pbtxt:5: error: ensemble 'm' depends on 'good' whose required version 7 is not loaded; model_version: -1 selects the newest loaded version"}},
		{"an ensemble of itself", map[string]string{"m/config.pbtxt": strings.ReplaceAll(check.Chain, "good", "m"), "m/1/x": ""},
			[]string{"m/config.pbtxt:5: error: circular dependency between ensembles: m -> ... -> m -> m; each has a step that leads to the next: remove one of these steps"}},
		{"ensembles in a circle", map[string]string{"m/config.pbtxt": strings.ReplaceAll(check.Chain, "good", "n"), "m/1/x": "", "n/config.pbtxt": strings.ReplaceAll(check.Chain, "good", "m"), "n/1/x": ""}, []string{
			"m/config.pbtxt:5: error: circular dependency between ensembles: m -> ... -> n -> m; each has a step that leads to the next: remove one of these steps",
			"n/config.pbtxt:5: error: circular dependency between ensembles: n -> ... -> m -> n; each has a step that leads to the next: remove one of these steps",
		}},
		{"an ensemble of another version", map[string]string{"m/config.pbtxt": check.Chain + "version_policy { specific { versions: [ 3 ] } }\n", "m/1/x": ""}, []string{
			"m/config.pbtxt:8: error: at least one version must be available under the version policy of model 'm'; version_policy selects none of the existing versions: 1",
			"m/config.pbtxt:8: warning: version 3 is specified for model 'm', but the version directory is not present",
		}},
		{"names that differ by case", map[string]string{"Good/config.pbtxt": check.Two, "Good/1/model.py": check.Script},
			[]string{"good: warning: model 'Good' has the same name in different case; case-insensitive file systems can hold only one of them"}},
		{"a folder of something else", map[string]string{"notebooks/a.ipynb": ""},
			[]string{"notebooks: error: Invalid model name: Could not determine backend for model 'notebooks' with no backend in model configuration. Expected model name of the form 'model.<backend_name>'; " +
				"if it is a model, start notebooks/config.pbtxt with backend: \"python\" and put the code into notebooks/1/model.py; if not, move it out of the repository"}},
		{"folders of tools", map[string]string{".git/HEAD": "", "__pycache__/x": ""}, []string{
			".git: triton: Triton treats each directory as a model and would not start; move it out of the repository",
			"__pycache__: triton: Triton treats each directory as a model and would not start; move it out of the repository",
		}},
		{"parameters", map[string]string{"m/config.pbtxt": check.Two + "parameters { key: \"ASYNC_EXECUTE_OVERLAP\" value { string_value: \"2\" } }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: triton: Triton ignores the parameter ASYNC_EXECUTE_OVERLAP; the model behaves there as without it"}},
		{"an interpreter", map[string]string{"m/config.pbtxt": check.Two + "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"/bin/sh\" } }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: triton: Triton rejects /bin/sh, which is a program: it needs an archive or the directory of an environment; " +
				"Triton needs an archive of conda-pack, with the Python that its stub was built for"}},
		{"fields", map[string]string{"m/config.pbtxt": check.Two + "model_metrics { }\n", "m/1/model.py": check.Script},
			[]string{"m/config.pbtxt:4: triton: Triton 24.10 does not support the field model_metrics and would fail to load the model; newer versions do"}},
		{"a numbered folder", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": check.Script, "m/2.old/model.py": check.Script}, []string{
			"m: warning: ignore version directory '2.old' which fails to convert to integral number; version directories are named 1, 2, 3, …",
			"m/2.old: triton: Triton reads this directory as version 2, which does not exist, and would fail to load the model; rename the directory",
		}},
		{"code", map[string]string{"m/config.pbtxt": check.Two, "m/1/model.py": "# nereid_testing\n" + strings.Replace(check.Script, "def", "async def", 1) + "        await sender.cancelled()\n"},
			[]string{"m/1/model.py:5: triton: await sender.cancelled() does not exist in Triton; guard it if the model should also run there"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := testkit.WriteFiles(t, t.TempDir(), good)
			testkit.WriteFiles(t, directory, c.files)
			status, lines, stderr := check.RunCheck(t, directory)
			lines = lines[:len(lines)-1]
			wrong := slices.ContainsFunc(c.want, func(line string) bool { return strings.Contains(line, " error: ") })
			if status != map[bool]int{true: 1}[wrong] || stderr != "" {
				t.Errorf("got status %d, stderr %q", status, stderr)
			}
			if !slices.EqualFunc(lines, c.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestOneModelIsChecked checks that a model can be named by its directory in several ways, and that
// other models are not checked, except the composing models of an ensemble.
func TestOneModelIsChecked(t *testing.T) {
	directory := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"good/config.pbtxt": check.Two, "good/1/model.py": check.Script, "bare/1/model.py": check.Script, "broken/config.pbtxt": "x", "both/config.pbtxt": check.Chain, "both/1/x": "",
	})
	t.Chdir(filepath.Join(directory, "good"))
	for name, want := range map[string]string{
		filepath.Join(directory, "good"): "1 model: 0 errors, 0 warnings, 0 differences from Triton",
		"../good/":                       "1 model: 0 errors, 0 warnings, 0 differences from Triton",
		".":                              "1 model: 0 errors, 0 warnings, 0 differences from Triton",
		"../bare":                        "1 model: 0 errors, 1 warning, 0 differences from Triton",
		"../both":                        "2 models: 0 errors, 0 warnings, 0 differences from Triton",
		"../broken":                      "1 model: 1 error, 0 warnings, 0 differences from Triton",
		"..":                             "4 models: 1 error, 1 warning, 0 differences from Triton",
	} {
		if _, lines, stderr := check.RunCheck(t, name); lines[len(lines)-1] != want {
			t.Errorf("%s: got %q, %s, want %q", name, lines, stderr, want)
		}
	}
	for names, want := range map[string]string{
		"good": "1 model: 0 errors, 0 warnings, 0 differences from Triton", "good bare good": "2 models: 0 errors, 1 warning, 0 differences from Triton",
		"both": "2 models: 0 errors, 0 warnings, 0 differences from Triton", "both broken": "3 models: 1 error, 0 warnings, 0 differences from Triton",
	} {
		var flags []string
		for name := range strings.FieldsSeq(names) {
			flags = append(flags, "--model", name)
		}
		if _, lines, stderr := check.RunCheck(t, directory, flags...); lines[len(lines)-1] != want {
			t.Errorf("--model %s: got %q, %s, want %q", names, lines, stderr, want)
		}
	}
}

// TestStrictCountsWarnings checks that a warning fails the check only with --strict.
func TestStrictCountsWarnings(t *testing.T) {
	directory := testkit.WriteFiles(t, t.TempDir(), map[string]string{"bare/1/model.py": check.Script})
	for flag, want := range map[string]int{"--strict=false": 0, "--strict": 1} {
		if status, lines, _ := check.RunCheck(t, directory, flag); status != want {
			t.Errorf("%s: got status %d, %s, want %d", flag, status, lines, want)
		}
	}
}

// TestInvalidCommandLines checks the errors for invalid command lines.
func TestInvalidCommandLines(t *testing.T) {
	directory := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/1/model.py": check.Script, "bare/model.py": check.Script, "file": ""})
	for want, args := range map[string][]string{
		"does not exist: want a model repository or a model":                        {filepath.Join(directory, "absent")},
		"is not a directory: want a model repository or a model":                    {filepath.Join(directory, "file")},
		"is a version directory: want the model, which is its":                      {filepath.Join(directory, "m", "1")},
		"bare has a model.py outside a version directory: move it":                  {filepath.Join(directory, "bare")},
		" after the directory of a model or a repository":                           {directory, directory},
		"--write-config and --request need exactly one model":                       {directory, "--write-config"},
		"--request needs --try or --write-config":                                   {filepath.Join(directory, "m"), "--request=x"},
		`--model is "baer", but it is not in ` + directory + `; did you mean bare?`: {directory, "--model=baer"},
		`--model is "other", but it is not in ` + directory:                         {directory, "--model=m", "--model", "other"},
		"m is a model: --model selects from a repository, such as " + directory:     {filepath.Join(directory, "m"), "--model=m"},
		"want the name of a model":                                                  {directory, "--model="},
		"flag provided but not defined: --nonsense":                                 {directory, "--nonsense"},
	} {
		if status, _, stderr := check.RunCheck(t, args[0], args[1:]...); status != command.StatusUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: got status %d, %q, want 2 and %q", args, status, stderr, want)
		}
	}
}

// TestPipesHoldUpNothing replaces each kind of file with a named pipe, and checks that the command
// reports it instead of blocking.
func TestPipesHoldUpNothing(t *testing.T) {
	labels := check.Two + "output { name: \"C\" data_type: TYPE_FP32 dims: [ 2 ] label_filename: \"labels\" }\n"
	warm := check.Two + "model_warmup { name: \"w\" batch_size: 1 inputs { key: \"A\" value { data_type: TYPE_FP32 dims: [ 2 ] input_data_file: \"data\" } } }\n"
	environment := check.Two + "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"$$TRITON_MODEL_DIRECTORY/env.tar.gz\" } }\n"
	for pipe, c := range map[string]struct{ config, want string }{
		"m/1/model.py":    {check.Two, "m/1/model.py: error: it is not a regular file; replace it with the file itself, or with a link to it"},
		"m/config.pbtxt":  {"", "error: failed to open text file for read "},
		"m/labels":        {labels, "m/config.pbtxt:4: error: failed to open text file for read "},
		"m/warmup/data":   {warm, "failed to open text file for read m/warmup/data: not a regular file (p---------)"},
		"m/env.tar.gz":    {environment, "env.tar.gz is a pipe, want an archive, a directory or a python"},
		"m/1":             {check.Two, "error: at least one version must be available"},
		"m/config.pbtxtt": {check.Two, "m/config.pbtxtt: warning: the file is ignored; the configuration file is config.pbtxt"},
	} {
		directory := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/config.pbtxt": c.config, "m/1/model.py": check.Script, filepath.Join(filepath.Dir(pipe), "x"): ""})
		path := filepath.Join(directory, pipe)
		if err := errors.Join(os.RemoveAll(path), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan []string, 1)
		go func() {
			_, lines, _ := check.RunCheck(t, directory)
			ended <- lines
		}()
		select {
		case lines := <-ended:
			if text := strings.Join(lines, "\n"); !strings.Contains(text, c.want) {
				t.Errorf("%s: got %s, want %s", pipe, text, c.want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the command hangs", pipe)
		}
	}
}

// TestRequestsAreReadFromJSON checks that valid JSON requests are accepted and invalid ones are
// rejected with an error that names the fault.
func TestRequestsAreReadFromJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.json")
	for text, want := range map[string]string{
		`{"inputs": [{"name": "A", "shape": [1, 2], "datatype": "FP32", "data": [[1, 2]]}]}`: "",
		`{"inputs": [{"name": "A", "shape": [1, 2], "datatype": "TYPE_FP32", "data": [1]}]}`: `input A has datatype "TYPE_FP32", want one such as`,
		`{"inputs": [{"name": "A", "shape": [3], "datatype": "FP32", "data": [1]}]}`:         "input A: it has 4 bytes, want 12 for shape [3] of FP32",
		`{"A": 1}`: "has no inputs",
		`{"parameters": {"sequence_start": 1}, "inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]}`:                                "parameters: Unable to parse 'sequence_start': ",
		`{"inputs": [{"name": "A", "shape": [2], "datatype": "FP32", "data": [1, 2]}], "outputs": [{"name": "B", "parameters": {"binary_data": true}}]}`: "",
		`{"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}], "outputs": [{}]}`:                                                    "an output has no name",
		`{"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}], "outputs": [{"name": "B", "parameters": {"classification": 2}}]}`:    "output B has the parameter classification, want only its name",
		`[`: "unexpected end of JSON input; want a JSON request",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := check.RequestIn(path)
		if want == "" && (err != nil || q.Inputs[0].Name != "A" || len(q.Inputs[0].Data) != 8) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if err == nil && slices.Equal(q.Outputs, []string{"B"}) != strings.Contains(text, `"B"`) {
			t.Errorf("%s: got outputs %q, want those that are asked for", text, q.Outputs)
		}
	}
}

// TestRequestsHaveManyParameters checks that a request may have more parameters than are charged in
// one step.
func TestRequestsHaveManyParameters(t *testing.T) {
	var parameters []string
	for i := range 200 {
		parameters = append(parameters, fmt.Sprintf(`"p%d": %d`, i, i))
	}
	path := filepath.Join(t.TempDir(), "q.json")
	text := `{"parameters": {` + strings.Join(parameters, ",") + `}, "inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if q, err := check.RequestIn(path); err != nil || len(q.Parameters) != 200 {
		t.Errorf("got %+v, %v, want 200 parameters", q, err)
	}
}

// TestRequestsKeepTheirParameters checks that reserved and custom parameters are read as the
// server's front end reads them.
func TestRequestsKeepTheirParameters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.json")
	text := `{"id": "q", "parameters": {"sequence_id": 3, "sequence_start": true, "priority": 2, "timeout": 500000, "mine": "x", "n": 7},
		"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := check.RequestIn(path)
	if err != nil {
		t.Fatal(err)
	}
	if q.Correlation.Number != 3 || q.Flags != infer.SequenceStart || q.Priority != 2 || q.TimeoutMicros != 500000 ||
		len(q.Parameters) != 2 || q.Parameters[0].Name != "mine" || q.Parameters[1].Name != "n" {
		t.Errorf("got %+v", q)
	}
}
