package cudaipc

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// Client is device memory of a client. The client can change the bytes at any time, but must not
// before the last response.
type Client interface {
	infer.Foreign
	// OnDevice returns the allocation that holds the bytes, and their offset; nil if they are
	// elsewhere. A reference to the memory holds the allocation.
	OnDevice() (allocation *foreign.Device, offset uint64)
}

// OfClient returns a tensor's memory if it is a client's device memory, otherwise nil.
func OfClient(t *infer.Tensor) (c Client, allocation *foreign.Device, offset uint64) {
	if t.Data != nil {
		return nil, nil, 0
	}
	return clientIn(t.Memory)
}

// ClientAt returns a place's memory if it is a client's device memory, otherwise nil.
func ClientAt(p *infer.Place) (c Client, allocation *foreign.Device, offset uint64) {
	return clientIn(p.Memory)
}

func clientIn(memory infer.Memory) (c Client, allocation *foreign.Device, offset uint64) {
	c, ok := memory.(Client)
	if !ok {
		return nil, nil, 0
	}
	if allocation, offset = c.OnDevice(); allocation == nil {
		return nil, nil, 0
	}
	return c, allocation, offset
}
