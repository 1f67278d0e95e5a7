package processtest

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// Host is a fake registry: it keeps the requests that it receives. The fields describe every model.
// It is also the Target of every model.
type Host struct {
	IsDecoupled, Asks, Unready, Devices bool
	Unknown, Refuse                     error

	mu       sync.Mutex
	requests []Submitted
	found    int // calls of Target
	held     int // targets not yet released
}

// Submitted is a request that a Host has received.
type Submitted struct {
	Context context.Context
	Request *infer.Request
	Send    infer.Sender
	Ended   *atomic.Bool // the last response has been sent
}

// Submit implements infer.Submitter.
func (h *Host) Submit(ctx context.Context, r *infer.Request, send infer.Sender) error {
	if h.Refuse != nil {
		return h.Refuse
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := new(atomic.Bool)
	h.requests = append(h.requests, Submitted{ctx, r, func(response *infer.Response) {
		ended.Store(response.Final)
		send(response)
	}, ended})
	return nil
}

// Target implements backend.Host.
func (h *Host) Target(string, int64) (backend.Target, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.found++
	if h.Unknown != nil {
		return nil, h.Unknown
	}
	h.held++
	return h, nil
}

// Release implements backend.Target.
func (h *Host) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held--
}

// Targets returns how often Target was called, and how many versions are held.
func (h *Host) Targets() (found, held int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found, h.held
}

// Decoupled implements backend.Target.
func (h *Host) Decoupled() bool { return h.IsDecoupled }

// AsksReady implements backend.Target.
func (h *Host) AsksReady() bool { return h.Asks }

// Ready implements backend.Target.
func (h *Host) Ready(context.Context) error {
	if h.Unready {
		return errors.New("not ready")
	}
	return nil
}

// TakesDevices implements backend.Target.
func (h *Host) TakesDevices() bool { return h.Devices }

// ModelReady implements backend.Host.
func (h *Host) ModelReady(context.Context, string, int64) (bool, error) { return !h.Unready, nil }

// Load implements backend.Host.
func (h *Host) Load(context.Context, string, string, map[string][]byte) error { return nil }

// Unload implements backend.Host.
func (h *Host) Unload(context.Context, string, bool) error { return nil }

// Taken returns the number of requests received.
func (h *Host) Taken() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.requests)
}

// Request returns the i-th request.
func (h *Host) Request(i int) Submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests[i]
}

// Forget removes the first n requests, which have ended.
func (h *Host) Forget(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = h.requests[n:]
}

// Infer is the body of INFER.
type Infer struct {
	Batch      uint64
	Flags      uint32
	Demand     uint32
	Model      string
	Parameters string
	Inputs     []ipc.Descriptor
}

// Encode returns the body.
func (i Infer) Encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, i.Batch)
	b = le.AppendUint64(b, math.MaxUint64) // the latest version
	b = le.AppendUint32(b, i.Flags)
	b = le.AppendUint32(b, i.Demand)
	b = le.AppendUint32(b, uint32(len(i.Model)))
	b = le.AppendUint32(b, 0)
	b = append(b, i.Model...)
	b = append(b, make([]byte, ipc.Align8(len(b))-len(b))...)
	h := ipc.RequestHead{Inputs: uint16(len(i.Inputs)), Outputs: ipc.AllOutputs, Parameters: uint32(len(i.Parameters))}
	at := len(b)
	b = append(b, make([]byte, ipc.RequestSize)...)
	h.Put(b[at:])
	for k := range i.Inputs {
		at := len(b)
		b = append(b, make([]byte, i.Inputs[k].Size())...)
		i.Inputs[k].Put(b[at:])
	}
	b = append(b, i.Parameters...)
	return append(b, make([]byte, ipc.Align8(len(b))-len(b))...)
}
