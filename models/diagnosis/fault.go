package diagnosis

import (
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/config"
)

// maxReason bounds the bytes of the reason: the log has the rest.
const maxReason = 500

// Fault is why one model could not be loaded.
type Fault struct {
	Model  string
	Source string // file, file:line or file:line:column, or at least the model's directory; may be ""
	Reason string // one line
	Remedy string // one sentence, may be ""
}

// String returns one line.
func (f Fault) String() string { return f.Model + ": " + f.Why() }

// Why is String without the model's name.
func (f Fault) Why() string {
	text := ""
	if f.Source != "" {
		text += f.Source + ": "
	}
	text += f.Reason
	if f.Remedy != "" {
		text = strings.TrimRight(text, ".") + "; " + f.Remedy
	}
	return text
}

var (
	// pythonFrame matches the innermost frame of an exception's text from the stub.
	pythonFrame = regexp.MustCompile(`(?m)^At:\n  (.+)\((\d+)\): `)
	// pythonSyntax matches Python's error for a file that it cannot parse.
	pythonSyntax = regexp.MustCompile(`\(([^\s()]+\.py), line (\d+)\)`)
	// noClass matches Python's error for a model.py without the class.
	noClass = regexp.MustCompile(`module '(\d+)\.(\w+)' has no attribute 'TritonPythonModel'`)
	// notOfModel matches errors about the interpreter of all models, not about a model's files.
	notOfModel = regexp.MustCompile(`python-executable |no python3 on PATH`)
	// versionFolder is the name of a version's folder.
	versionFolder = regexp.MustCompile(`^[0-9]+$`)
	// versionFailed matches the start of a version's text in the error of its model.
	versionFailed = regexp.MustCompile(`^version (\d+) is at UNAVAILABLE state: `)
)

// Of diagnoses the error of a load. directory is the model's, and file its configuration, both as
// the operator would write them; "" if unknown.
func Of(model, directory, file string, err error) Fault {
	return diagnose(model, "", directory, file, err)
}

// OfVersion diagnoses the error of a load of one version.
func OfVersion(model string, version int64, directory string, err error) *Fault {
	f := diagnose(model, strconv.FormatInt(version, 10), directory, "", err)
	return &f
}

func diagnose(model, version, directory, file string, err error) Fault {
	f := Fault{Model: model, Source: file}
	var parse *config.ParseError
	if errors.As(err, &parse) {
		f.Source, f.Reason, _ = strings.Cut(parse.Detail(), ": ")
		f.Remedy = parse.Remedy()
		return f
	}
	text := infer.AsError(err).Detailed().Message
	if m := versionFailed.FindStringSubmatch(text); m != nil {
		version, text = m[1], text[len(m[0]):]
	}
	var rest string
	f.Reason, rest, _ = strings.Cut(strings.TrimRight(text, ";\n"), "\n")
	if next, _, _ := strings.Cut(strings.TrimSpace(rest), "\n"); strings.HasSuffix(f.Reason, ":") && next != "At:" {
		f.Reason += " " + next
	}
	if len(f.Reason) > maxReason {
		f.Reason = strings.ToValidUTF8(f.Reason[:maxReason], "") + " …"
	}
	if m := pythonFrame.FindStringSubmatch(text); m != nil {
		f.Source = m[1] + ":" + m[2]
	} else if m := pythonSyntax.FindStringSubmatch(text); m != nil {
		f.Source = filepath.Join(directory, version, m[1]) + ":" + m[2]
		f.Reason = strings.TrimSuffix(f.Reason, " "+m[0])
	} else if m := noClass.FindStringSubmatch(text); m != nil {
		f.Source = filepath.Join(directory, m[1], m[2]+".py")
	}
	f.Remedy = remedy(text, directory)
	if notOfModel.MatchString(text) {
		f.Source = ""
	}
	return f
}

// remedies are for texts of Triton's that beginners meet; <dir> stands for the model's directory.
// The first match counts.
var remedies = []struct{ text, remedy string }{
	{"Could not determine backend for model",
		`if it is a model, start <dir>/config.pbtxt with backend: "python" and put the code into <dir>/1/model.py; if not, move it out of the repository`},
	{"at least one version must be available",
		"a model needs a directory for each version, such as <dir>/1, with the model.py, or empty for an ensemble; if this is not a model, move it out of the repository"},
	{"Did you mean '", ""}, // the text has the remedy
	{"python-executable", ""},
	{"python3 on PATH", ""},
	{"unable to find backend library for backend", `for a model.py, use backend: "python"`},
	{"has no attribute 'TritonPythonModel'", "the server creates an instance of that class: define class TritonPythonModel: with def execute(self, requests)"},
	{"Python model file not found in", "each version directory needs a model.py with a class TritonPythonModel"},
	{"must specify 'dims'", "dims are the shape without the batch dimension, such as dims: [ 4 ], with -1 for any size"},
	{"must specify 'data_type'", "such as data_type: TYPE_FP32; use TYPE_STRING for strings and bytes"},
	{"process did not initialize its model within", "give it more time with initialize-timeout-seconds of --backend-config; 0 is no limit"},
	{"process did not complete its config within", "give it more time with initialize-timeout-seconds of --backend-config; 0 is no limit"},
	{"No module named", "install it for the Python that runs the models: the log names it (using Python interpreter), and --backend-config=python,python-executable=PATH selects it"},
	{"model not found in any model repository", "a model is found by the name of its directory"},
	{": inconsistent data type: ", "the models that produce and consume a tensor must agree: change one of the configurations"},
	{": inconsistent shape: ", "the models that produce and consume a tensor must agree, or have -1: change one of the configurations"},
	{" is mapping to non-existing input ", "a key in an input_map is the name of an input of the step's model"},
	{" is mapped from non-existing output ", "a key in an output_map is the name of an output of the step's model"},
	{"circular dependency between ensembles", "each has a step that leads to the next: remove one of these steps"},
	{" whose required version ", "model_version: -1 selects the newest loaded version"},
	{"ensemble input '", "a step reads a tensor that is named as a value in its input_map; no step reads this one"},
	{"ensemble output '", "a step writes a tensor that is named as a value in its output_map; no step writes this one"},
	{", is not connected", "no step writes that tensor: add it as a value to an output_map, or make it an input of the ensemble"},
	{" is unused in ensemble ", "a tensor between steps must be a value in the output_map of one step and in the input_map of another"},
	{"ensemble scheduling must be set", "ensemble_scheduling { step [ … ] } lists the composing models"},
	{"must specify 'step' for ensemble", "ensemble_scheduling { step [ … ] } lists the composing models"},
	{"must specify 'model_name' in step", "model_name is the model that the step calls"},
	{"instance group should not be specified for ensemble", "only the composing models have instances: remove instance_group"},
	{"must specify 'name'", `such as name: "INPUT0"`},
	{"dimension must be integer >= 1", "dims: [ 4 ] is four elements, dims: [ -1 ] any number of them"},
	{"has different size for dims and reshape", "both must have the same number of elements"},
	{"preferred size must be <= max batch size", "raise max_batch_size, or lower preferred_batch_size"},
	{"'max_batch_size' must be non-negative", "0, or no max_batch_size, means that the model does not support batching"},
	{"unexpected platform type", `platform is for ensembles: for a model.py, use backend: "python"`},
	{"directory name must equal model name", "rename the directory, or leave out name"},
	{"default priority level must be in range", "levels count from 1 to priority_levels"},
	{"kind KIND_GPU but no GPUs are available", "kind: KIND_AUTO uses a GPU if there is one, and otherwise the CPU"},
	{"/config.pbtxt: No such file", "write one; without --disable-auto-complete-config, the model's auto_complete_config can replace it"},
	{"failed to open text file for read ", "the path in the config is relative to the directory of the model"},
	{"not unique across all model repositories", "rename one of the directories, or start the server with --model-namespacing=true"},
}

func remedy(text, directory string) string {
	if strings.Contains(text, "Could not determine backend for model") && versionFolder.MatchString(filepath.Base(directory)) {
		model := filepath.Dir(directory)
		return "a directory with a number is a version: if " + model + " is a model, use the directory above it as the repository, also in KServe's storageUri"
	}
	for _, r := range remedies {
		if strings.Contains(text, r.text) {
			if directory == "" {
				directory = "the directory of the model"
			}
			return strings.ReplaceAll(r.remedy, "<dir>", directory) // bound: a path
		}
	}
	return ""
}
