package bls_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/backendstest"
	"github.com/nereid-serving/nereid/examples/backends/bls"
)

func TestConfigsAreChecked(t *testing.T) {
	backendstest.CheckConfigs(t, bls.New, []backendstest.Config{
		{"batching", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] max_batch_size: 2`, "bls backend only supports models with max_batch_size == 0"},
		{"inputs", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected 2 inputs, got 1"},
		{"outputs", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected 2 outputs, got 1"},
		{"first input", `input [ { name: "A" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected first input tensor name to be INPUT0, got A"},
		{"second input", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "A" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected second input tensor name to be INPUT1, got A"},
		{"first output", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "A" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected first output tensor name to be OUTPUT0, got A"},
		{"second output", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "A" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected second output tensor name to be OUTPUT1, got A"},
		{"shape", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4, 4 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "expected INPUT0 shape to have one dimension, got [4,4]"},
		{"type", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ] `, "expected OUTPUT1 datatype to be TYPE_FP32, got TYPE_INT32"},
		{"good", `input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] } ] `, ""},
	})
}
