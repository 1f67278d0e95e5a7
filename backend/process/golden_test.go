package process_test

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/vmihailenco/msgpack/v5"
)

func TestGoldenLogSettingsAreEncoded(t *testing.T) {
	body, err := msgpack.Marshal(process.LogLevels{Warning: true, Verbose: 1})
	if err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "log_settings", ipc.LogSettings, 0, body)
}
