package square_test

import (
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/backendstest"
	"github.com/nereid-serving/nereid/examples/backends/square"
)

func TestConfigsAreChecked(t *testing.T) {
	backendstest.CheckConfigs(t, square.New, []backendstest.Config{
		{"batching", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] max_batch_size: 2 model_transaction_policy { decoupled: true }`, "square backend only supports models with max_batch_size == 0"},
		{"one response each", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] `, "square backend only supports models with a decoupled transaction policy"},
		{"name", `input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`, "expected input tensor name to be IN, got A"},
		{"shape", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] } ] model_transaction_policy { decoupled: true }`, "expected OUT shape to be [1], got [2]"},
		{"type", `input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`, "expected IN datatype to be INT32, got TYPE_FP32"},
		{"good", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`, ""},
	})
}
