package process

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
	"github.com/vmihailenco/msgpack/v5"
)

func TestGoldenLogSettingsAreEncoded(t *testing.T) {
	body, err := msgpack.Marshal(LogLevels{Warning: true, Verbose: 1})
	if err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "log_settings", ipc.LogSettings, 0, body)
}

// TestGoldenExecuteIsEncoded encodes a batch of two requests: tensors in the frame and in
// a block, all the strings, chosen outputs.
func TestGoldenExecuteIsEncoded(t *testing.T) {
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	loans := &shm.Loans{}
	defer loans.Close()
	e := encoder{pool: pool, loans: loans, names: newNames([]string{"IN0", "IN1"}, []string{"OUT0", "OUT1"})}
	requests := []*infer.Request{
		{
			ID: "ürgent", Correlation: infer.CorrelationID{Text: "seq"}, Flags: infer.SequenceStart | infer.SequenceEnd | 0x80010000,
			TimeoutMicros: 1_000_000,
			Parameters: []infer.Parameter{
				{Name: "s", Kind: infer.StringParameter, String: "a\"b"}, {Name: "i", Kind: infer.IntParameter, Int: -5},
				{Name: "b", Kind: infer.BoolParameter, Bool: true}, {Name: "d", Kind: infer.DoubleParameter, Double: 2},
			},
			Inputs: []infer.Tensor{
				{Name: "IN0", DataType: infer.FP32, Shape: []int64{1, 2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
				{Name: "IN1", DataType: infer.Bytes, Shape: []int64{2}, Data: encodeStrings("ab", "cd")},
			},
			Outputs: []string{"OUT1"},
		},
		{
			Correlation: infer.CorrelationID{Number: 42},
			Inputs:      []infer.Tensor{{Name: "IN0", DataType: infer.Uint8, Shape: []int64{5000}, Data: bytes.Repeat([]byte{9}, 5000)}},
		},
	}
	if err := e.plan(requests, []uint64{1 << 32, 1<<32 | 1}); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, e.size)
	e.write(body, requests)
	ipctest.Want(t, "execute", ipc.Execute, 1, body)
	e.undo()
}

// TestGoldenMapsAreDecoded decodes the maps that the stub encodes.
func TestGoldenMapsAreDecoded(t *testing.T) {
	for name, want := range map[string]map[string]any{
		"initialized":       {"error": "", "is_ready": true},
		"initialized_error": {"error": "ValueError: wörk\n\nAt:\n  model.py(1): <module>\n", "is_ready": false},
		"completed":         {"error": "", "config": `{"name": "mod\u00e8le"}`},
		"completed_error":   {"error": "ValueError: wörk", "config": ""},
		"ready":             {"ready": true, "error": ""},
		"ready_error":       {"ready": false, "error": "ValueError: wörk"},
		"finalized":         {"error": "ValueError: late"},
	} {
		got := make(map[string]any)
		if err := decode(ipc.Frame{Body: ipctest.Body(t, name)}, &got); err != nil {
			t.Fatal(err)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s: got %s %v, want %v", name, key, got[key], value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: got %d fields, want %d", name, len(got), len(want))
		}
	}
	fields := make(map[string]any)
	if err := decode(ipc.Frame{Body: ipctest.Body(t, "log")}, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["file"] != "model.py" || fields["message"] != "wörk" || len(fields) != 4 {
		t.Errorf("log: got %v", fields)
	}
}

// TestGoldenCallsAreDecodedAndAnswered decodes what the stub asks, and encodes what it is
// answered.
func TestGoldenCallsAreDecodedAndAnswered(t *testing.T) {
	for name, want := range map[string]callBody{
		"call_load": {
			Operation: "load", Model: "mödel", Config: `{"max_batch_size":4}`,
			Files: callFiles{content: map[string][]byte{"file:1/x": {0, 1}}},
		},
		"call_unload":      {Operation: "unload", Model: "m", Dependents: true},
		"call_ready":       {Operation: "ready", Model: "m", Version: "1"},
		"call_new_family":  {Operation: "new_family", Family: 1, Name: "f", Description: "wörds", Kind: 2},
		"call_new_metric":  {Operation: "new_metric", Family: 1, Metric: 300, Labels: [][2]string{{"a", "ä"}, {"b", ""}}, Buckets: []float64{0.5, 1}},
		"call_value":       {Operation: "value", Metric: 300},
		"call_drop_family": {Operation: "drop_family", Family: 1},
	} {
		var got callBody
		if err := decode(ipc.Frame{Kind: ipc.Call, Body: ipctest.Body(t, name)}, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, error %v, want %+v", name, got, err, want)
		}
	}
	body, err := msgpack.Marshal(&resultBody{Error: "wörong", Ready: true, Value: -0.5})
	if err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "result", ipc.Result, 5, body)
}

// TestGoldenInferResponsesAreEncoded encodes responses for a model: an output in the frame
// and one in a block, of a name that is new; an error; the end of a stream.
func TestGoldenInferResponsesAreEncoded(t *testing.T) {
	s := newStandIn(t, shm.Memfd{})
	l := s.newLife()
	l.encoder = encoder{pool: s.pool, loans: l.loans, names: l.down}
	l.down = newNames([]string{"IN0"}, []string{"OUT0"})
	defer l.loans.Close()
	for name, r := range map[string]*infer.Response{
		"infer_response": {
			Final:      true,
			Parameters: []infer.Parameter{{Name: "i", Kind: infer.IntParameter, Int: -5}, {Name: "s", Kind: infer.StringParameter, String: "ü"}},
			Outputs: []infer.Tensor{
				{Name: "SUM", DataType: infer.FP32, Shape: []int64{1, 2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
				{Name: "OUT0", DataType: infer.Uint8, Shape: []int64{5000}, Data: bytes.Repeat([]byte{9}, 5000)},
			},
		},
		"infer_response_error": infer.ErrorResponse(infer.Errorf(infer.NotFound, "nöt found")),
		"infer_response_end":   {Final: true, Empty: true},
	} {
		p, err := l.place(r)
		if err != nil {
			t.Fatal(err)
		}
		descriptors, err := p.describe()
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, p.size)
		p.write(body, descriptors)
		ipctest.Want(t, name, ipc.InferResponse, 9, body)
		p.release()
	}
}
