package frames

import (
	"bytes"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

// TestGoldenExecuteIsEncoded encodes a batch of two requests with tensors in the frame and in a
// block, all strings, and selected outputs.
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
	e := NewEncoder(nil, pool, loans)
	e.Names = mustName(t, []string{"IN0", "IN1"}, []string{"OUT0", "OUT1"})
	requests := []*infer.Request{
		{
			ID: "ürgent", Correlation: infer.CorrelationID{Text: "seq"}, Flags: infer.SequenceStart | infer.SequenceEnd | 0x80010000,
			TimeoutMicros: 1_000_000, Priority: 3,
			Parameters: []infer.Parameter{
				{Name: "s", Kind: infer.StringParameter, String: "a\"b"}, {Name: "i", Kind: infer.IntParameter, Int: -5},
				{Name: "b", Kind: infer.BoolParameter, Bool: true}, {Name: "d", Kind: infer.DoubleParameter, Double: 2},
			},
			Inputs: []infer.Tensor{
				{Name: "IN0", DataType: infer.FP32, Shape: []int64{1, 2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
				{Name: "IN1", DataType: infer.Bytes, Shape: []int64{2}, Data: []byte("\x02\x00\x00\x00ab\x02\x00\x00\x00cd")},
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

// TestGoldenMapsAreDecoded decodes the stub's maps.
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
		if _, err := DecodeMap(nil, ipc.Frame{Body: ipctest.Body(t, name)}, &got); err != nil {
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
	if _, err := DecodeMap(nil, ipc.Frame{Body: ipctest.Body(t, "log")}, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["file"] != "model.py" || fields["message"] != "wörk" || len(fields) != 4 {
		t.Errorf("log: got %v", fields)
	}
}

// TestGoldenInferResponsesAreEncoded encodes responses for a model: outputs in the frame and in a
// block, one with a new name; an error; and the end of a stream.
func TestGoldenInferResponsesAreEncoded(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	p.encoder.Names = mustName(t, []string{"IN0"}, []string{"OUT0"})
	for name, r := range map[string]*infer.Response{
		"infer_response": {
			Final:      true,
			Version:    3,
			Parameters: []infer.Parameter{{Name: "i", Kind: infer.IntParameter, Int: -5}, {Name: "s", Kind: infer.StringParameter, String: "ü"}},
			Outputs: []infer.Tensor{
				{Name: "SUM", DataType: infer.FP32, Shape: []int64{1, 2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
				{Name: "OUT0", DataType: infer.Uint8, Shape: []int64{5000}, Data: bytes.Repeat([]byte{9}, 5000)},
			},
		},
		"infer_response_error": infer.ErrorResponse(infer.Errorf(infer.NotFound, "nöt found")),
		"infer_response_end":   {Final: true, Empty: true},
	} {
		r, err := p.encoder.Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.describe(); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, r.size)
		r.write(body)
		ipctest.Want(t, name, ipc.InferResponse, 9, body)
		r.Release()
	}
}
