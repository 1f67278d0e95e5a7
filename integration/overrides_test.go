package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// overriddenModel reports its config and the files of its directory.
const overriddenModel = `
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        top = args["model_repository"]
        found = [os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names]
        data = os.path.join(pb_utils.get_model_dir(), "sub", "data")
        self.told = {
            "tag": json.loads(args["model_config"])["parameters"]["tag"]["string_value"],
            "repository": top,
            "directory": pb_utils.get_model_dir(),
            "file": __file__,
            "files": sorted(name for name in found if not name.endswith(".pyc")),
            "mode": os.stat(top).st_mode & 0o777,
            "data": open(data, "rb").read().hex() if os.path.exists(data) else "",
        }

    def execute(self, requests):
        answer = np.array([json.dumps(self.told).encode()], dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]) for _ in requests]
`

const overriddenConfig = `
backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
parameters { key: "tag" value { string_value: "disk" } }
`

// uploadsIn sets the directory for temporary files of the test's servers.
func uploadsIn(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	return directory
}

func wantNoUploads(t *testing.T, directory string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(directory, "nereid-models-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("%q are left, %v", left, err)
	}
}

// TestClientsLoadWithConfigsAndFiles checks loads with configs and files from both clients, on the
// oldest and the newest Python. The shutdown must remove the uploads.
func TestClientsLoadWithConfigsAndFiles(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			temporary := uploadsIn(t)
			repository := writeFiles(t, map[string]string{"disk/config.pbtxt": overriddenConfig, "disk/1/model.py": overriddenModel})
			s := start(t, python.Path, repository, "--model-control-mode=explicit", "--load-model=disk")
			s.runClient("overrides.py", filepath.Join(repository, "disk", "1", "model.py"))
			for _, line := range []string{
				"Poll failed for model directory 'fresh_http': Load parameter 'config' must be specified for model file override",
				"Poll failed for model directory 'fresh_grpc': Invalid file parameter 'file:../x' with normalized path '",
				"Poll failed for model directory 'fresh_http': Invalid file parameter 'file:1/model.py/x', directory has been created as a file",
				`Poll failed for model directory 'disk': Invalid config override: nope: Cannot find field.`,
				"ignore version directory '02' which contains leading zeros in its directory name",
			} {
				if !s.prints(line) {
					t.Errorf("the log has no %q", line)
				}
			}
			s.stop()
			wantNoUploads(t, temporary)
		})
	}
}

// TestModelsLoadWithFiles checks loads with configs and files by a model.
func TestModelsLoadWithFiles(t *testing.T) {
	const failed = "TritonModelException: Failed to load model: Failed to process the request for model 'asks_0', message: "
	notPolled := func(name string) string {
		return failed + "failed to load '" + name + "', failed to poll from model repository"
	}
	config, err := json.Marshal(`{"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],` +
		` "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}], "parameters": {"tag": {"string_value": "model"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			temporary := uploadsIn(t)
			repository := writeFiles(t, map[string]string{
				"disk/config.pbtxt": overriddenConfig, "disk/1/model.py": overriddenModel,
				"asks/config.pbtxt": asksConfig, "asks/1/model.py": asksModel(t),
			})
			s := start(t, python.Path, repository, "--model-control-mode=explicit", "--load-model=asks")
			s.wantAsked("asks", fmt.Sprintf("config, code = %s, open(%q, 'rb').read()", config, filepath.Join(repository, "disk", "1", "model.py")), "done")
			s.wantAsked("asks", `
import json
def told(name):
    tensor = pb.Tensor("IN", np.zeros(1, np.int32))
    answer = pb.InferenceRequest(model_name=name, requested_output_names=["OUT"], inputs=[tensor]).exec()
    if answer.has_error():
        raise answer.error()
    return json.loads(answer.output_tensors()[0].as_numpy()[0])
`, "done")
			for _, row := range [][2]string{
				{"pb.load_model('fresh', config, {'file:1/model.py': code, 'file:1/sub/data': b'\\x01\\x00'})", "None"},
				{"pb.is_model_ready('fresh'), told('fresh')['tag'], told('fresh')['data'], told('fresh')['files']",
					"(True, 'model', '0100', ['1/model.py', '1/sub/data', 'config.pbtxt'])"},
				{"told('fresh')['directory'].startswith(" + fmt.Sprintf("%q", temporary) + ")", "True"},
				{"pb.load_model(model_name='disk', config=config), told('disk')['tag']", "(None, 'model')"},
				{"pb.load_model('disk', files={}), told('disk')['tag']", "(None, 'model')"},
				{"pb.load_model('fresh')", notPolled("fresh")},
				{"pb.load_model('fresh', '{bad')", notPolled("fresh")},
				{"pb.load_model('disk', '{bad')", notPolled("disk")},
				{"pb.load_model('fresh', files={'file:1/model.py': code})", notPolled("fresh")},
				{"pb.load_model('fresh', config, {'1/model.py': code})", notPolled("fresh")},
				{"pb.load_model('fresh', config, {'file:../x': code})", notPolled("fresh")},
				{"pb.load_model('fresh', config, [])", "TritonModelException: failed to load model 'fresh', files should be a dictionary of file paths and file contents"},
				{"pb.load_model('fresh', config, {'file:1/model.py': b'raise ValueError(1)'})",
					failed + "load failed for model 'fresh': version 1 is at UNAVAILABLE state: Internal: ValueError: 1\n\nAt:\n  …"},
				{"told('fresh')['tag']", "'model'"},
				{"pb.unload_model('fresh')", "None"},
			} {
				s.wantAsked("asks", row[0], row[1])
			}
			s.until("without files", func() bool {
				left, _ := filepath.Glob(filepath.Join(temporary, "nereid-models-*", "*"))
				return len(left) == 0
			})
			s.wantAsked("asks", "pb.load_model('kept', config, {'file:1/model.py': code})", "None")
			if left, _ := filepath.Glob(filepath.Join(temporary, "nereid-models-*", "*")); len(left) != 1 {
				t.Errorf("%q are there, want the files of one model", left)
			}
			s.stop()
			wantNoUploads(t, temporary)
		})
	}
}

// TestUploadsOfAKilledServer checks that a server removes the uploads that a killed server has
// left.
func TestUploadsOfAKilledServer(t *testing.T) {
	temporary := uploadsIn(t)
	python := oldestAndNewest(t)[0]
	repository := writeFiles(t, map[string]string{"disk/config.pbtxt": overriddenConfig, "disk/1/model.py": overriddenModel})
	body, err := json.Marshal(map[string]any{"parameters": map[string]any{
		"config": `{"backend":"python","parameters":{"tag":{"string_value":"x"}},"input":[{"name":"IN","data_type":"TYPE_INT32","dims":[1]}],"output":[{"name":"OUT","data_type":"TYPE_STRING","dims":[1]}]}`,
		// encoding/json encodes bytes as base64, as Triton requires.
		"file:1/model.py": []byte(overriddenModel),
	}})
	if err != nil {
		t.Fatal(err)
	}
	killed := start(t, python.Path, repository, "--model-control-mode=explicit")
	if status, text := killed.request("POST", "/v2/repository/models/fresh/load", string(body)); status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	children := killed.descendants()
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.wait(startLimit)
	killed.gone(children)
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) == 0 {
		t.Fatalf("%v, %v: a server that is killed removes nothing", left, err)
	}
	next := start(t, python.Path, repository)
	wantNoUploads(t, temporary)
	next.stop()
}
