package recommended_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/backendstest"
	"github.com/nereid-serving/nereid/examples/backends/recommended"
)

func TestConfigsAreChecked(t *testing.T) {
	backendstest.CheckConfigs(t, recommended.New, []backendstest.Config{
		{"no input", `input [  ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "model configuration must have 1 input"},
		{"two outputs", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "P" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "model configuration must have 1 output"},
		{"types", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "O" data_type: TYPE_INT32 dims: [ 16 ] } ] `, "expected input and output datatype to match, got TYPE_FP32 and TYPE_INT32"},
		{"reshaped input", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] } ] `, "reshape not supported for input tensor"},
		{"reshaped output", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } } ] `, "reshape not supported for output tensor"},
		{"shapes", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 4, 2 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] } ] `, "expected input and output shape to match, got [4,2] and [4]"},
		{"good", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 16 ] } ] `, ""},
	})
}
