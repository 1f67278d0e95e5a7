package square

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// host is a model's config.
type host struct {
	sdk.ModelHost
	config *kserve.ModelConfig
}

func (h host) Config() *kserve.ModelConfig { return h.config }

func TestConfigsAreChecked(t *testing.T) {
	for _, test := range []struct{ name, config, want string }{
		{"batching", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] max_batch_size: 2 model_transaction_policy { decoupled: true }`, "square backend only supports models with max_batch_size == 0"},
		{"one response each", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] `, "square backend only supports models with a decoupled transaction policy"},
		{"name", `input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`, "expected input tensor name to be IN, got A"},
		{"shape", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] } ] model_transaction_policy { decoupled: true }`, "expected OUT shape to be [1], got [2]"},
		{"type", `input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`, "expected IN datatype to be INT32, got TYPE_FP32"},
		{"good", `input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true }`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := host{config: &kserve.ModelConfig{}}
			if err := prototext.Unmarshal([]byte(test.config), h.config); err != nil {
				t.Fatal(err)
			}
			b, err := New(&sdk.BackendEnv{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.NewModel(sdk.NewModelEnv(sdk.ModelEnv{Log: slog.New(slog.DiscardHandler)}, h))
			if got := text(err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// text is that of an error, "" of none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
