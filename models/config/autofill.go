package config

import (
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Values of 'platform' and 'backend' that mean something to the server.
const (
	PlatformEnsemble = "ensemble" // the platform of ensembles, which have no backend
	BackendPython    = "python"   // the backend that runs model.py

	platformTensorRT = "tensorrt_plan"
)

// framework is a backend that the platform or the model file implies if the configuration names
// none.
type framework struct {
	backend string
	// platforms name the backend; the first is the default. With needsPlatform the backend alone is
	// not enough.
	platforms     []string
	needsPlatform bool
	files         []modelFile // by platform where there are several
}

// File is an entry of a version's directory.
type File struct {
	Name string
	Dir  bool // a directory, or a link to one
}

type modelFile struct {
	name     string
	platform string // the platform that this file implies, if any
	file     bool   // may be a file
	dir      bool   // may be a directory
}

// frameworks in the order in which they are tried.
var frameworks = []framework{
	{
		backend: "tensorflow", platforms: []string{"tensorflow_savedmodel", "tensorflow_graphdef"}, needsPlatform: true,
		files: []modelFile{
			{name: "model.savedmodel", platform: "tensorflow_savedmodel", dir: true},
			{name: "model.graphdef", platform: "tensorflow_graphdef", file: true},
		},
	},
	{backend: "tensorrt", platforms: []string{platformTensorRT}, files: []modelFile{{name: "model.plan", file: true}}},
	{backend: "onnxruntime", platforms: []string{"onnxruntime_onnx"}, files: []modelFile{{name: "model.onnx", file: true, dir: true}}},
	{backend: "openvino", files: []modelFile{{name: "model.xml", file: true}}},
	{
		backend: "pytorch", platforms: []string{"pytorch_libtorch", "libtorch", "torch_aoti"},
		files: []modelFile{{name: "model.pt", file: true}, {name: "model.pt2", platform: "torch_aoti", file: true}},
	},
	{backend: BackendPython, files: []modelFile{{name: "model.py", file: true, dir: true}}},
}

// autofill completes name, backend, platform and file name. content lists the first sub-directory
// of the model; directory is the model's.
func autofill(config *kserve.ModelConfig, directory string, content []File) error {
	if config.Name == "" {
		config.Name = directory
	}
	unsaid := config.Platform == "" && config.DefaultModelFilename == ""
	for _, f := range frameworks {
		if f.recognise(config, content, unsaid) {
			return nil
		}
	}
	if config.Platform != "" || config.Backend != "" || config.DefaultModelFilename != "" {
		return nil
	}
	_, backend, found := strings.Cut(directory, ".")
	if !found {
		return infer.Errorf(infer.InvalidArg, "Invalid model name: Could not determine backend for model '%s' with no backend in model configuration. Expected model name of the form 'model.<backend_name>'.", directory)
	}
	config.Backend, config.DefaultModelFilename = backend, "model."+backend
	return nil
}

// recognise fills the configuration in and returns true if the model is f's.
func (f *framework) recognise(config *kserve.ModelConfig, content []File, unsaid bool) bool {
	if config.Backend != "" && config.Backend != f.backend {
		return false
	}
	file := f.file(config, content, unsaid)
	if config.Backend == "" {
		if file == nil && !slices.Contains(f.platforms, config.Platform) {
			return false
		}
	} else if f.needsPlatform && file == nil && !slices.Contains(f.platforms, config.Platform) {
		return false
	}
	config.Backend = f.backend
	if config.Platform == "" && len(f.platforms) > 0 {
		config.Platform = f.platforms[0]
		if file != nil && file.platform != "" {
			config.Platform = file.platform
		}
	}
	if config.DefaultModelFilename == "" {
		config.DefaultModelFilename = f.files[0].name
		for _, candidate := range f.files {
			if candidate.platform == config.Platform && candidate.platform != "" {
				config.DefaultModelFilename = candidate.name
			}
		}
	}
	return true
}

// file returns the model file of f that the configuration names or, if it names neither platform
// nor file, that exists.
func (f *framework) file(config *kserve.ModelConfig, content []File, unsaid bool) *modelFile {
	if f.needsPlatform && config.Platform != "" {
		return nil
	}
	for i := range f.files {
		file := &f.files[i]
		if config.DefaultModelFilename == file.name {
			return file
		}
		if !unsaid {
			continue
		}
		for _, e := range content {
			if e.Name == file.name && (e.Dir && file.dir || !e.Dir && file.file) {
				return file
			}
		}
	}
	return nil
}
