package bls

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

// FuzzInfers handles arbitrary INFER, DEMAND and STOP_INFER frames. The request is handed over or
// answered, or the life ends. Nothing leaks.
func FuzzInfers(f *testing.F) {
	for _, name := range []string{"infer", "demand", "stop_infer"} {
		frame := ipctest.Frame(f, name)
		f.Add(binary.LittleEndian.Uint16(frame[4:]), uint64(9), frame[ipc.HeaderSize:])
	}
	strings2 := processtest.InArena(4, 0, 12)
	strings2.Type, strings2.Shape = uint8(infer.Bytes), []int64{2}
	f.Add(uint16(ipc.Infer), uint64(1), processtest.Infer{Model: "m", Inputs: []ipc.Descriptor{processtest.InArena(1, 0, 8192), strings2, processtest.InArena(2, 5, 0)}, Parameters: `{"a":1}`}.Encode())
	onDevice := ipc.Descriptor{Name: 1, Type: uint8(infer.Uint8), Region: ipc.InDevice, Length: 8, Ticket: 1 << 31, Mapping: 1, Shape: []int64{8}}
	f.Add(uint16(ipc.Infer), uint64(1), processtest.Infer{Model: "m", Inputs: []ipc.Descriptor{onDevice}}.Encode())
	peer := processtest.New(f, shm.Memfd{})
	f.Fuzz(func(t *testing.T, kind uint16, number uint64, body []byte) {
		switch ipc.Kind(kind) {
		case ipc.Infer, ipc.Demand, ipc.StopInfer:
		default:
			kind = uint16(ipc.Infer)
		}
		b := benchOn(t, peer)
		b.mustAsk(9, processtest.Infer{Flags: ipc.InferStream})
		var err error
		n := testkit.Allocated(func() { err = b.session.Handle(ipc.Frame{Kind: ipc.Kind(kind), ID: number, Body: body}) })
		var broken *ipc.ProtocolError
		if err != nil && !errors.As(err, &broken) {
			t.Errorf("got error %v, want a protocol error", err)
		}
		if limit := 64*uint64(len(body)) + 2*processtest.Arena; n > limit {
			t.Errorf("%d bytes were allocated for a body of %d, want at most %d", n, len(body), limit)
		}
		b.sent()
		b.settled()
	})
}
