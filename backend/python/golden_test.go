package python

import (
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/vmihailenco/msgpack/v5"
)

// TestGoldenInitializeIsEncoded encodes a model's INITIALIZE and AUTO_COMPLETE frames.
func TestGoldenInitializeIsEncoded(t *testing.T) {
	module := moduleBody{Path: "/models/m/1/model.py", Module: "1.model", Search: []string{"/models/m/1", "/models/m"}, Directory: "/models/m/1"}
	surroundings := process.Surroundings{Log: process.LogLevels{Info: true, Error: true, Verbose: 2}, Spin: 50, Default: 1 << 20, Growth: 2 << 20, Max: 32 << 30}
	body, err := msgpack.Marshal(&initializeBody{
		Args: map[string]string{"model_name": "modèle"}, Tensors: process.Tensors{Names: []string{"IN", "OUT"}, Inputs: 1, Outputs: 1},
		moduleBody: module, Surroundings: surroundings, Window: process.Window{Responses: 64, Bytes: 4 << 20}, AsyncOverlap: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "initialize", ipc.Initialize, 0, body)
	if body, err = msgpack.Marshal(&completeBody{Config: `{"name":"modèle"}`, Model: "modèle", moduleBody: module, Surroundings: surroundings}); err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "auto_complete", ipc.AutoComplete, 0, body)
}

// TestGoldenHelloIsDecoded decodes the stub's description of its interpreter.
func TestGoldenHelloIsDecoded(t *testing.T) {
	var hello interpreterInfo
	if err := msgpack.Unmarshal(ipctest.Body(t, "hello"), &hello); err != nil {
		t.Fatal(err)
	}
	if want := (interpreterInfo{Python: "3.11.7", Numpy: "1.26.4", Executable: "/usr/bin/python3", Prefix: "/usr"}); !reflect.DeepEqual(hello, want) {
		t.Errorf("hello: got %+v, want %+v", hello, want)
	}
}
