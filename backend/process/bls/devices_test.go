package bls

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestAskDevices checks the hint for a caller with inputs on devices, and whether they are copied
// first. A copy waits for another process and must not block the reader of the ring.
func TestAskDevices(t *testing.T) {
	for _, test := range []struct {
		takes, traced bool
		hint          uint32
		fetched       bool
	}{
		{true, false, ipc.HintDevices, false},
		{true, true, ipc.HintDevices, true},
		{false, false, ipc.HintHost, true},
		{false, true, ipc.HintHost, true},
	} {
		t.Run(fmt.Sprintf("takes %v, traced %v", test.takes, test.traced), func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.host.Devices = test.takes
			lent := cudaipc.NewLent(b.Channel.Arena(), nil)
			defer lent.Close()
			allocation := make([]byte, ipc.AllocationSize)
			binary.LittleEndian.PutUint64(allocation[8:], 4096)
			if err := lent.Receive(ipc.Frame{Kind: ipc.Lend, ID: 1, Body: allocation}); err != nil {
				t.Fatal(err)
			}
			m, err := lent.Borrow(1, 1<<31, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			q := &request{of: b.requests, target: b.host}
			q.request.Inputs = []infer.Tensor{{Name: "HERE", Data: []byte("abc")}, {Name: "THERE", Memory: m}}
			defer q.releaseInputs()
			if test.traced {
				fresh(&q.request.Trace)
			}
			q.askDevices()
			if q.hint() != test.hint || q.fetched != test.fetched {
				t.Errorf("got hint %d and fetched %v, want %d and %v", q.hint(), q.fetched, test.hint, test.fetched)
			}
		})
	}
}

// fresh allocates a pointer's target.
func fresh[T any](p **T) { *p = new(T) }
