package plugin

import (
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/ipc/peer"
)

// TestGoldenFramesOfPluginsAlone checks the golden frames that only plugins send or receive. It is
// internal because golden frames have fixed times, and those of a process vary.
func TestGoldenFramesOfPluginsAlone(t *testing.T) {
	body, err := msgpack.Marshal(&decoupledCall{Operation: "decoupled", Model: "m", Version: versionText(2)})
	if err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "call_decoupled", ipc.Call, 3, body)
	if body, err = msgpack.Marshal(&memoryCall{"memory", 5 << 40}); err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "call_memory", ipc.Call, 0, body)
	if body, err = msgpack.Marshal(&responseCall{"response", 2, 1000, 2000, 3000, 1}); err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "call_response", ipc.Call, 0, body)
	if body, err = msgpack.Marshal(&activityCall{"activity", `7{"traceparent":"x"}`, "nöte_START", 1000}); err != nil {
		t.Fatal(err)
	}
	ipctest.Want(t, "call_activity", ipc.Call, 0, body)
	var a responses
	a.fail(gathered{ResponseHead: ipc.ResponseHead{Handle: 1<<32 | 1, Flags: ipc.FlagFinal}}, infer.Errorf(infer.Unsupported, "nöt"))
	a.failure(1 << 32)
	a.failure(1<<32 | 1)
	head := ipc.ExecutedHead{Responses: uint32(len(a.list)), Called: 1000, Returned: 2000}
	body = make([]byte, a.size(ipc.ExecutedSize))
	head.Put(body)
	a.write(body, ipc.ExecutedSize)
	ipctest.Want(t, "executed_failure", ipc.Executed, 1, body)
	var got result
	if err := decode(peer.Message{Frame: ipc.Frame{Kind: ipc.Result, Body: ipctest.Body(t, "result_decoupled")}}, &got); err != nil || !got.Decoupled || !got.Asks || got.Error != "" {
		t.Errorf("got %+v, error %v", got, err)
	}
}
