package entry

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestForms(t *testing.T) {
	flags := []string{"--model-store=/mnt/models", "--http-port=8080"}
	inSageMaker := map[string]string{"SAGEMAKER_MULTI_MODEL": "true"}
	for _, test := range []struct {
		name      string
		args      []string
		variables map[string]string
		program   string
		want      []string // nil: SageMaker's
		commands  bool
	}{
		{"tritonserver by name", append([]string{"/opt/tritonserver/bin/tritonserver"}, flags...), nil, triton, flags, false},
		{"tritonserver takes no names", []string{"tritonserver", "tritonserver"}, nil, triton, []string{"tritonserver"}, false},
		{"nereid", append([]string{"bin/nereid"}, flags...), nil, nereid, flags, true},
		{"another name", append([]string{"a.out"}, flags...), nil, "a.out", flags, true},
		{"tritonserver first", append([]string{"nereid", "tritonserver"}, flags...), nil, triton, flags, false},
		{"its path first", append([]string{"nereid", "/opt/tritonserver/bin/tritonserver"}, flags...), nil, triton, flags, false},
		{"nereid first", append([]string{"nereid", "nereid", "bench"}, flags...), nil, nereid, append([]string{"bench"}, flags...), true},
		{"serve is a subcommand", []string{"nereid", "serve"}, nil, nereid, []string{"serve"}, true},
		{"serve in SageMaker", []string{"nereid", "serve"}, inSageMaker, triton, nil, false},
		{"serve of a directory in SageMaker", []string{"nereid", "serve", "models"}, inSageMaker, nereid, []string{"serve", "models"}, true},
		{"serve by name", []string{"/usr/local/bin/serve"}, inSageMaker, triton, nil, false},
		{"image: nothing", []string{"nereid-entrypoint"}, nil, triton, []string{}, false},
		{"image: flags", append([]string{"nereid-entrypoint"}, flags...), nil, triton, flags, false},
		{"image: tritonserver", append([]string{"nereid-entrypoint", "tritonserver"}, flags...), nil, triton, flags, false},
		{"image: a subcommand", []string{"nereid-entrypoint", "nereid", "version"}, nil, nereid, []string{"version"}, true},
		{"image: serve", []string{"nereid-entrypoint", "serve"}, inSageMaker, triton, nil, false},
		{"image: serve a directory", []string{"nereid-entrypoint", "serve", "/models"}, nil, nereid, []string{"serve", "/models"}, true},
		{"Vertex AI", append([]string{"nereid-entrypoint"}, flags...), map[string]string{"AIP_MODE": "PREDICTION"}, triton, flags, false},
		{"Vertex AI with an argument", []string{"nereid-entrypoint", "x"}, map[string]string{"AIP_MODE": "PREDICTION"}, triton, []string{"x"}, false},
		{"Vertex AI with tritonserver", append([]string{"nereid-entrypoint", "tritonserver"}, flags...), map[string]string{"AIP_MODE": "PREDICTION"}, triton, flags, false},
	} {
		line, err := MachineWith(t, test.variables).Resolve(test.args)
		if err != nil || line.Program != test.program || line.Commands != test.commands || line.Exec != "" {
			t.Errorf("%s: got %+v, error %v, want program %s and subcommands %v", test.name, line, err, test.program, test.commands)
		}
		if sageMaker := slices.Contains(line.Args, "--allow-sagemaker=true"); sageMaker != (test.want == nil) || test.want != nil && !slices.Equal(line.Args, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, line.Args, test.want)
		}
	}
}

func TestSageMakersVariablesBecomeFlags(t *testing.T) {
	m := MachineWith(t, map[string]string{
		"SAGEMAKER_BIND_TO_PORT": "8081", "SAGEMAKER_SAFE_PORT_RANGE": "9000-9001", "SAGEMAKER_TRITON_ALLOW_METRICS": "true",
		"SAGEMAKER_TRITON_LOG_VERBOSE": "2", "SAGEMAKER_TRITON_ADDITIONAL_ARGS": " --id=a  --grpc-port=9000", "SAGEMAKER_MULTI_MODEL": "true",
		"SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT": "0.5",
	})
	for _, gpu := range []string{"0000:01:00.0", "0000:02:00.0"} {
		if err := os.MkdirAll(filepath.Join(m.Root, gpuFolder, gpu), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	line, err := m.Resolve([]string{"serve"})
	want := append(slices.Clone(sageMakerFlags), "--model-namespacing=true", "--sagemaker-port=8081", "--sagemaker-safe-port-range=9000-9001",
		"--allow-grpc=false", "--allow-metrics=true", "--log-verbose=2", "--model-load-gpu-limit=0:0.5", "--model-load-gpu-limit=1:0.5",
		"--model-repository="+m.Root+multiModel, "--id=a", "--grpc-port=9000")
	if err != nil || !slices.Equal(line.Args, want) {
		t.Errorf("got %q, error %v\nwant %q", line.Args, err, want)
	}
	if !isDirectory(m.Root + multiModel) {
		t.Error("the repository has not been made")
	}
	if got := line.Getenv(m.Getenv)("SAGEMAKER_TRITON_PING_MODE"); got != "live" {
		t.Errorf("the ping mode is %q, want live", got)
	}
	if got := line.Getenv(m.Getenv)("SAGEMAKER_BIND_TO_PORT"); got != "8081" {
		t.Errorf("a variable that is not set anew is %q, want that of the environment", got)
	}
}

func TestSageMakersModel(t *testing.T) {
	for _, test := range []struct {
		name      string
		paths     []string // a trailing slash marks a directory
		variables map[string]string
		model     string
		note, err string
	}{
		{"the only one", []string{"bert/"}, nil, "bert", "WARNING: No SAGEMAKER_TRITON_DEFAULT_MODEL_NAME provided.", ""},
		{"files do not count", []string{"bert/", "README"}, nil, "bert", "WARNING: No SAGEMAKER_TRITON_DEFAULT_MODEL_NAME provided.", ""},
		{"the one that is named", []string{"a/", "b/"}, map[string]string{modelName: "b"}, "b", "", ""},
		{"none", nil, nil, "", "", "ERROR: No model found in model repository"},
		{"several", []string{"a/", "b/"}, nil, "", "", "ERROR: More than 1 model directory found in model repository."},
		{"another name", []string{"a/"}, map[string]string{modelName: "b"}, "", "", "ERROR: Directory with provided SAGEMAKER_TRITON_DEFAULT_MODEL_NAME b does not exist"},
		{"a model as the repository", []string{"config.pbtxt", "1/"}, nil, "", "", "ERROR: Incorrect directory structure."},
		{"another kind of answer", []string{"a/"}, map[string]string{inference: "chat"}, "", "", "ERROR: Invalid SAGEMAKER_TRITON_INFERENCE_TYPE 'chat'"},
	} {
		m := MachineWith(t, test.variables)
		for _, path := range append([]string{"./"}, test.paths...) {
			folder, file := filepath.Split(filepath.Join(m.Root, singleModel) + "/" + path)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if file != "" {
				if err := os.WriteFile(folder+file, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		line, err := m.Resolve([]string{"serve"})
		if test.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: got error %v, want %q", test.name, err, test.err)
			}
			continue
		}
		if err != nil || !slices.Contains(line.Args, "--load-model="+test.model) || !slices.Contains(line.Args, "--model-repository="+m.Root+singleModel) {
			t.Errorf("%s: got %q, error %v, want model %s", test.name, line.Args, err, test.model)
		}
		if got := line.Getenv(m.Getenv)(modelName); got != test.model {
			t.Errorf("%s: requests go to %q, want %q", test.name, got, test.model)
		}
		if got := strings.Join(line.Notes, ""); got != test.note {
			t.Errorf("%s: got notes %q, want %q", test.name, got, test.note)
		}
		if got := line.Settings[pingMode]; got != "" {
			t.Errorf("%s: the ping mode is set to %s, want it left alone", test.name, got)
		}
	}
}
