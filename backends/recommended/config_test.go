package recommended

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
		{"no input", `input [  ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "model configuration must have 1 input"},
		{"two outputs", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "P" data_type: TYPE_FP32 dims: [ 16 ] } ] `, "model configuration must have 1 output"},
		{"types", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "O" data_type: TYPE_INT32 dims: [ 16 ] } ] `, "expected input and output datatype to match, got TYPE_FP32 and TYPE_INT32"},
		{"reshaped input", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] } ] `, "reshape not supported for input tensor"},
		{"reshaped output", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } } ] `, "reshape not supported for output tensor"},
		{"shapes", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 4, 2 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] } ] `, "expected input and output shape to match, got [4,2] and [4]"},
		{"good", `input [ { name: "I" data_type: TYPE_FP32 dims: [ 16 ] } ] output [ { name: "O" data_type: TYPE_FP32 dims: [ 16 ] } ] `, ""},
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
