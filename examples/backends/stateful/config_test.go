package stateful_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/examples/backends/stateful"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// host returns a model's config.
type host struct {
	sdk.ModelHost
	config *kserve.ModelConfig
}

func (h host) Config() *kserve.ModelConfig { return h.config }

func TestConfigsAreChecked(t *testing.T) {
	for _, test := range []struct{ name, config, want string }{
		{"no sequences", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 parameters { key: "cell_file_name" value { string_value: "cell.json" } } `, "stateful backend needs sequence_batching with the strategy oldest"},
		{"direct", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { direct {} } parameters { key: "cell_file_name" value { string_value: "cell.json" } } `, "stateful backend needs sequence_batching with the strategy oldest"},
		{"no controls", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest {} } parameters { key: "cell_file_name" value { string_value: "cell.json" } } `, "stateful backend needs the control inputs CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END and CONTROL_SEQUENCE_CORRID"},
		{"no cell", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } `, "the parameter cell_file_name is missing"},
		{"a cell elsewhere", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "../cell.json" } } `, "the parameter cell_file_name is '../cell.json', want a file of the version directory"},
		{"state pairs", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "cell.json" } } parameters { key: "state_pairs" value { string_value: "State, Next" } } `, "the parameter state_pairs is 'State, Next', want one pair as in <<<InState, OutState>>> for each state"},
		{"other pairs", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "cell.json" } } parameters { key: "state_pairs" value { string_value: "<<<A, B>>>" } } `, "the parameter state_pairs names A and B, but the cell has State and NextState"},
		{"a pair too many", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "cell.json" } } parameters { key: "state_pairs" value { string_value: "<<<State, NextState>>> <<<A, B>>>" } } `, "the parameter state_pairs names A and B, State and NextState, but the cell has State and NextState"},
		{"ratio", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "cell.json" } } parameters { key: "max_candidate_sequence_use_ratio" value { string_value: "2" } } `, "the parameter max_candidate_sequence_use_ratio is '2', want a number above 0 and up to 1"},
		{"shape", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "cell.json" } } `, "OUTPUT is TYPE_FP32[4], but the cell has TYPE_FP32[3]"},
		{"good", `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] } ] max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
	{ name: "S" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
	{ name: "E" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
	{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] } parameters { key: "cell_file_name" value { string_value: "cell.json" } } parameters { key: "ort_ep" value { string_value: "cpu" } } parameters { key: "state_pairs" value { string_value: "<<< State , NextState >>>" } } `, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := host{config: &kserve.ModelConfig{}}
			if err := prototext.Unmarshal([]byte(test.config), h.config); err != nil {
				t.Fatal(err)
			}
			b, err := stateful.New(&sdk.BackendEnv{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.NewModel(sdk.NewModelEnv(sdk.ModelEnv{Version: 1, Directory: "../../backend_models/stateful_cell", Log: slog.New(slog.DiscardHandler)}, h))
			if got := text(err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestPairsNameTheStatesOfAllLayers checks that state pairs may be in a different order than the
// layers.
func TestPairsNameTheStatesOfAllLayers(t *testing.T) {
	const layer = `{"in_state": "%", "out_state": "Next%", "input_weights": [[1]], "state_weights": [[1]], "bias": [0]}`
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	cell := `{"layers": [` + strings.ReplaceAll(layer, "%", "A") + ", " + strings.ReplaceAll(layer, "%", "B") + "]}"
	if err := os.WriteFile(filepath.Join(directory, "1", "cell.json"), []byte(cell), 0o600); err != nil {
		t.Fatal(err)
	}
	const config = `input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] } ] output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] } ] max_batch_size: 4
		sequence_batching { oldest { max_candidate_sequences: 4 } control_input [
		{ name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
		{ name: "E" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
		{ name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] }
		parameters { key: "cell_file_name" value { string_value: "cell.json" } }
		parameters { key: "state_pairs" value { string_value: "<<<B, NextB>>>  <<<A, NextA>>>" } }`
	h := host{config: &kserve.ModelConfig{}}
	if err := prototext.Unmarshal([]byte(config), h.config); err != nil {
		t.Fatal(err)
	}
	if _, err := stateful.NewModel(sdk.NewModelEnv(sdk.ModelEnv{Version: 1, Directory: directory, Log: slog.New(slog.DiscardHandler)}, h)); err != nil {
		t.Error(err)
	}
}

// text returns the error's text, or "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
