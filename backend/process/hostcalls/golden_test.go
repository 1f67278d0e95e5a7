package hostcalls

import (
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/vmihailenco/msgpack/v5"
)

// TestGoldenCallsAreDecodedAndAnswered decodes the stub's calls and encodes the results.
func TestGoldenCallsAreDecodedAndAnswered(t *testing.T) {
	for name, want := range map[string]callBody{
		"call_load": {
			Operation: "load", Model: "mödel", Config: `{"max_batch_size":4}`,
			Files: callFiles{content: map[string][]byte{"file:1/x": {0, 1}}},
		},
		"call_unload":      {Operation: "unload", Model: "m", Dependents: true},
		"call_ready":       {Operation: "ready", Model: "m", Version: "1"},
		"call_decoupled":   {Operation: "decoupled", Model: "m", Version: "2"},
		"call_memory":      {Operation: "memory", Bytes: 5 << 40},
		"call_imported":    {Operation: "imported", Paths: []string{"/srv/hëlper.py", "/srv/pkg/__init__.py"}},
		"call_response":    {Operation: "response", Index: 2, Start: 1000, OutputStart: 2000, End: 3000, Outcome: 1},
		"call_activity":    {Operation: "activity", Trace: `7{"traceparent":"x"}`, Name: "nöte_START", At: 1000},
		"call_new_family":  {Operation: "new_family", Family: 1, Name: "f", Description: "wörds", Kind: 2},
		"call_new_metric":  {Operation: "new_metric", Family: 1, Metric: 300, Labels: [][2]string{{"a", "ä"}, {"b", ""}}, Buckets: []float64{0.5, 1}},
		"call_value":       {Operation: "value", Metric: 300},
		"call_drop_family": {Operation: "drop_family", Family: 1},
	} {
		var got callBody
		if _, err := frames.DecodeMap(nil, ipc.Frame{Kind: ipc.Call, Body: ipctest.Body(t, name)}, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, error %v, want %+v", name, got, err, want)
		}
	}
	body, err := msgpack.Marshal(&resultBody{Error: "wörong", Code: 4, Ready: true, Value: -0.5})
	if err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "result", ipc.Result, 5, body)
	if body, err = msgpack.Marshal(&resultBody{Decoupled: true, Asks: true}); err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "result_decoupled", ipc.Result, 6, body)
}
