package config_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
)

// TestAutofillFollowsTheFiles compares autofill with Triton's results for the same files. A name
// with a slash is a directory.
func TestAutofillFollowsTheFiles(t *testing.T) {
	const undetermined = "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. Expected model name of the form 'model.<backend_name>'."
	for _, c := range []struct {
		name, model, config string
		files               []string
		backend, platform   string
		file                string
		refused             string
	}{
		{name: "python by file", files: []string{"model.py"}, backend: "python", file: "model.py"},
		{name: "python by directory", files: []string{"model.py/"}, backend: "python", file: "model.py"},
		{name: "python by backend", config: `backend: "python"`, files: []string{"model.onnx"}, backend: "python", file: "model.py"},
		{name: "python by file name", config: `default_model_filename: "model.py"`, backend: "python", file: "model.py"},
		{name: "python with a platform", config: `backend: "python" platform: "onnxruntime_onnx"`, backend: "python", platform: "onnxruntime_onnx", file: "model.py"},
		{name: "python with a file name", config: `backend: "python" default_model_filename: "sub/foo.py"`, backend: "python", file: "sub/foo.py"},
		{name: "a platform hides the file", config: `platform: "foo"`, files: []string{"model.py"}, platform: "foo"},
		{name: "a file name hides the file", config: `default_model_filename: "x.py"`, files: []string{"model.py"}, file: "x.py"},
		{name: "onnx before python", files: []string{"model.onnx", "model.py"}, backend: "onnxruntime", platform: "onnxruntime_onnx", file: "model.onnx"},
		{name: "onnx directory", files: []string{"model.onnx/"}, backend: "onnxruntime", platform: "onnxruntime_onnx", file: "model.onnx"},
		{name: "onnx by platform", config: `platform: "onnxruntime_onnx" default_model_filename: "model.py"`, backend: "onnxruntime", platform: "onnxruntime_onnx", file: "model.py"},
		{name: "onnx by backend", config: `backend: "onnxruntime" default_model_filename: "z.onnx"`, backend: "onnxruntime", platform: "onnxruntime_onnx", file: "z.onnx"},
		{name: "saved model", files: []string{"model.savedmodel/"}, backend: "tensorflow", platform: "tensorflow_savedmodel", file: "model.savedmodel"},
		{name: "saved model that is a file", files: []string{"model.savedmodel"}, refused: undetermined},
		{name: "graph", config: `backend: "tensorflow"`, files: []string{"model.graphdef"}, backend: "tensorflow", platform: "tensorflow_graphdef", file: "model.graphdef"},
		{name: "graph by platform", config: `platform: "tensorflow_graphdef"`, backend: "tensorflow", platform: "tensorflow_graphdef", file: "model.graphdef"},
		{name: "tensorflow without platform", config: `backend: "tensorflow"`, backend: "tensorflow"},
		{name: "tensorflow with another file", config: `backend: "tensorflow" default_model_filename: "my.graphdef"`, backend: "tensorflow", file: "my.graphdef"},
		{name: "plan", files: []string{"model.plan"}, backend: "tensorrt", platform: "tensorrt_plan", file: "model.plan"},
		{name: "plan that is a directory", files: []string{"model.plan/"}, refused: undetermined},
		{name: "openvino", files: []string{"model.xml"}, backend: "openvino", file: "model.xml"},
		{name: "pytorch", files: []string{"model.pt"}, backend: "pytorch", platform: "pytorch_libtorch", file: "model.pt"},
		{name: "pytorch by backend", config: `backend: "pytorch"`, backend: "pytorch", platform: "pytorch_libtorch", file: "model.pt"},
		{name: "unknown backend", config: `backend: "foo"`, files: []string{"model.onnx"}, backend: "foo"},
		{name: "unknown backend with a platform", config: `backend: "foo" platform: "onnxruntime_onnx"`, backend: "foo", platform: "onnxruntime_onnx"},
		{name: "ensemble", config: `platform: "ensemble"`, files: []string{"model.py"}, platform: "ensemble"},
		{name: "by name", model: "cust.foo.bar", backend: "foo.bar", file: "model.foo.bar"},
		{name: "by name, empty", model: "cust.", file: "model."},
		{name: "by name, hidden", model: ".cust", backend: "cust", file: "model.cust"},
		{name: "by name, not with a platform", model: "cust.pl", config: `platform: "z"`, platform: "z"},
		{name: "nothing", files: []string{"x"}, refused: undetermined},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed := &kserve.ModelConfig{}
			if err := prototext.Unmarshal([]byte(c.config), parsed); err != nil {
				t.Fatal(err)
			}
			var content []config.File
			for _, file := range c.files {
				e := config.File{Name: file}
				if last := len(file) - 1; file[last] == '/' {
					e = config.File{Name: file[:last], Dir: true}
				}
				content = append(content, e)
			}
			model := c.model
			if model == "" {
				model = "m"
			}
			refused := ""
			if err := config.Autofill(parsed, model, content); err != nil {
				refused = err.Error()
			}
			if refused != c.refused {
				t.Fatalf("got error %q, want %q", refused, c.refused)
			}
			if refused != "" {
				return
			}
			if parsed.Name != model || parsed.Backend != c.backend || parsed.Platform != c.platform || parsed.DefaultModelFilename != c.file {
				t.Errorf("got name %q, backend %q, platform %q, file %q\nwant name %q, backend %q, platform %q, file %q",
					parsed.Name, parsed.Backend, parsed.Platform, parsed.DefaultModelFilename, model, c.backend, c.platform, c.file)
			}
		})
	}
}
