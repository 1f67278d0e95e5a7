package version_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/version"
)

// TestInitialStatesAreReadOrRefused loads models with initial states and checks the first state of
// their sequences, or the error.
func TestInitialStatesAreReadOrRefused(t *testing.T) {
	state := func(rest string) string { return `{ input_name: "S" output_name: "T" ` + rest + ` }` }
	const int32s = `data_type: TYPE_INT32 dims: [ 2, -1 ] `
	for _, c := range []struct {
		name, states string
		want         string // the error, or the first state
		warns        string
	}{
		{"none said", state(`data_type: TYPE_INT16 dims: [ 2, -1, 3 ]`), "[2,1,3] \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		{"texts", state(`data_type: TYPE_STRING dims: [ -1 ] initial_state: { name: "i" data_type: TYPE_STRING dims: [ 1 ] data_file: "bytes" }`), "[1] \x00\x00\x00\x00", ""},
		{"zero", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] zero_data: false }`), "[2,1] \x00\x00\x00\x00\x00\x00\x00\x00", ""},
		{"a file", state(`data_type: TYPE_INT8 dims: [ -1 ] initial_state: { name: "i" data_type: TYPE_INT8 dims: [ 3 ] data_file: "bytes" }`), "[3] abc", ""},
		{"two", state(int32s + `initial_state: { name: "i" } initial_state: { name: "j" }`),
			"Invalid argument: initial_state field for state input 'S' must contain exactly one or zero element. Found '2' elements.", ""},
		{"type", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT8 dims: [ 2, 1 ] zero_data: true }`),
			"Invalid argument: The data type used for 'initial_state' field of state 'S' does not match the state data type.", ""},
		{"name", state(int32s + `initial_state: { data_type: TYPE_INT32 dims: [ 2, 1 ] zero_data: true }`),
			"Invalid argument: Field 'name' must be set when using initial_state for state input 'S'.", ""},
		{"again", state(int32s+`initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] zero_data: true }`) + ", " +
			state(int32s+`initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] zero_data: true }`),
			"Invalid argument: State input name 'S' specified more than once.", ""},
		{"rank", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2 ] zero_data: true }`),
			"Invalid argument: Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 'S'. 1 != 2", ""},
		{"variable", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, -1 ] zero_data: true }`),
			"Invalid argument: 'initial_state' field for state input name 'S' contains variable dimensions.", ""},
		{"dimension", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 3, 1 ] zero_data: true }`),
			"Invalid argument: 'initial_state' dim for input name 'S' doesn't match 'state' dim description. 3 != 2", ""},
		{"no data", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] }`),
			"Invalid argument: initial_state setting expects state'S' to have state_data set", ""},
		{"short file", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] data_file: "bytes" }`),
			"Invalid argument: initial_state setting expects 8 bytes, but the data provided from bytesonly has 4 bytes.", ""},
		{"no file", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] data_file: "none" }`),
			"Internal: failed to open text file for read ROOT/m/initial_state/none: No such file or directory", ""},
		{"outside", state(int32s + `initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2, 1 ] data_file: "../config.pbtxt" }`),
			"Unsupported: initial_state file path '../config.pbtxt' for state input 'S' in model 'm' is outside model directory", ""},
		{"no type", state(`dims: [ 1 ]`), "Invalid argument: state input 'S' must specify 'data_type'", ""},
		{"too large", state(`data_type: TYPE_INT32 dims: [ 1000000, 1000000 ]`),
			"Invalid argument: state input 'S' has INT32 of [1000000,1000000], which is more than 2147483648 bytes", ""},
		{"a name twice", state(`data_type: TYPE_INT8 dims: [ 1 ]`) + `, { input_name: "S" output_name: "U" data_type: TYPE_INT8 dims: [ 5 ] }`, "[1] \x00",
			"state with input name 'S' and output name 'U' of model 'm' repeats the name of an earlier one and is ignored"},
		{"growable", state(`data_type: TYPE_INT8 dims: [ 1 ] use_growable_memory: true`), "[1] \x00", "use_growable_memory of state input name 'S' of model 'm' has no effect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := writeModel(t, "sequence_batching { state [ "+c.states+" ] }")
			testkit.WriteFiles(t, root, map[string]string{"m/initial_state/bytes": "abcd"})
			var log strings.Builder
			b := &echoes{}
			v, err := newShelf(t, root, b, func(s *version.Settings) { s.Log = zerolog.New(zerolog.SyncWriter(&log)) }).load("m")
			if err != nil {
				got := infer.AsError(err).Detailed().Status()
				if want := strings.ReplaceAll(c.want, "ROOT", root); got != want {
					t.Errorf("got the reason %q, want %q", got, want)
				}
				return
			}
			if err := v.Infer(t.Context(), &infer.Request{
				Model: "m", Version: 1, Correlation: infer.CorrelationID{Number: 7}, Flags: infer.SequenceStart,
				Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}},
			}, func(*infer.Response) {}); err != nil {
				t.Fatal(err)
			}
			first := b.inputs[1]
			if got := infer.ShapeString(first.Shape) + " " + string(first.Data); first.Name != "S" || got != c.want {
				t.Errorf("sequences begin with %q, want %q", got, c.want)
			}
			if !strings.Contains(log.String(), c.warns) {
				t.Errorf("the log does not say %q:\n%s", c.warns, log.String())
			}
		})
	}
}
