package python

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/vmihailenco/msgpack/v5"
)

// -update writes the golden frames that this package encodes.
var update = flag.Bool("update", false, "write the golden frames that this package encodes")

func goldenPath(name string) string {
	return filepath.Join("..", "..", "ipc", "testdata", name+".bin")
}

// wantGolden compares a body with that of the golden frame, which is of life 7.
func wantGolden(t *testing.T, name string, kind ipc.Kind, id uint64, body []byte) {
	t.Helper()
	frame := binary.LittleEndian.AppendUint32(nil, uint32(ipc.HeaderSize+len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(kind))
	frame = binary.LittleEndian.AppendUint64(frame, 7)
	frame = append(binary.LittleEndian.AppendUint64(frame, id), body...)
	if *update {
		if err := os.WriteFile(goldenPath(name), frame, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenPath(name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(frame, want) {
		t.Errorf("%s: got\n%x, want\n%x", name, frame, want)
	}
}

func goldenBody(t *testing.T, name string) []byte {
	t.Helper()
	frame, err := os.ReadFile(goldenPath(name))
	if err != nil {
		t.Fatal(err)
	}
	return frame[ipc.HeaderSize:]
}

// TestGoldenInitialize encodes what the stub is told of a model.
func TestGoldenInitialize(t *testing.T) {
	module := moduleBody{Path: "/models/m/1/model.py", Module: "1.model", Search: []string{"/models/m/1", "/models/m"}, Directory: "/models/m/1"}
	surroundings := process.Surroundings{Log: process.LogLevels{Info: true, Error: true, Verbose: 2}, Spin: 50, Default: 1 << 20, Growth: 2 << 20, Max: 32 << 30}
	body, err := msgpack.Marshal(&initializeBody{
		Args: map[string]string{"model_name": "modèle"}, Tensors: process.Tensors{Names: []string{"IN", "OUT"}, Inputs: 1, Outputs: 1},
		moduleBody: module, Surroundings: surroundings, Windows: process.Windows{Responses: 64, Bytes: 4 << 20}, AsyncOverlap: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "initialize", ipc.Initialize, 0, body)
	if body, err = msgpack.Marshal(&completeBody{Config: `{"name":"modèle"}`, Model: "modèle", moduleBody: module, Surroundings: surroundings}); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "auto_complete", ipc.AutoComplete, 0, body)
}

// TestGoldenHello decodes what the stub says of its interpreter.
func TestGoldenHello(t *testing.T) {
	var hello interpreterInfo
	if err := msgpack.Unmarshal(goldenBody(t, "hello"), &hello); err != nil {
		t.Fatal(err)
	}
	if want := (interpreterInfo{Python: "3.11.7", Numpy: "1.26.4", Executable: "/usr/bin/python3", Prefix: "/usr"}); !reflect.DeepEqual(hello, want) {
		t.Errorf("hello: got %+v, want %+v", hello, want)
	}
}
