package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// identity is a minimal model.
const identity = `import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())]) for r in requests]
`

// gated is an identity model that waits until the file GATE exists.
const gated = `import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        import json
        self.gate = json.loads(args["model_config"])["parameters"]["GATE"]["string_value"]

    def execute(self, requests):
        while not os.path.exists(self.gate):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())]) for r in requests]
`

// config is the config of both, with room for more settings.
const config = `backend: "python"
max_batch_size: %d
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { kind: KIND_CPU count: %d } ]
%s`

// modelName returns the name of the n-th model of a repository, counted from 0.
func modelName(n int) string { return fmt.Sprintf("model_%04d", n) }

// makeRepository writes models with the given number of instances each.
func makeRepository(models, instances int) (string, error) {
	root, err := os.MkdirTemp("", "scale")
	if err != nil {
		return "", err
	}
	for n := range models {
		if err := writeModel(root, modelName(n), identity, fmt.Sprintf(config, 0, instances, "")); err != nil {
			return "", errors.Join(err, os.RemoveAll(root))
		}
	}
	return root, nil
}

func writeModel(root, name, code, config string) error {
	if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(config), 0o644),
		os.WriteFile(filepath.Join(root, name, "1", "model.py"), []byte(code), 0o644))
}
