package cudaipc

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// Client is memory of a client on a device. The client may change the bytes at any moment, and has no right
// to before the last response.
type Client interface {
	infer.Foreign
	// OnDevice returns the allocation that the bytes lie in, and where in it they begin; nil if they lie
	// elsewhere. A reference to the memory keeps the allocation.
	OnDevice() (allocation *foreign.Device, offset uint64)
}

// OfClient returns the memory of a tensor that its client has on a device; nil of all other tensors.
func OfClient(t *infer.Tensor) (c Client, allocation *foreign.Device, offset uint64) {
	if t.Data != nil {
		return nil, nil, 0
	}
	return clientIn(t.Memory)
}

// ClientAt returns the memory of a place that its client has on a device; nil of all other places.
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
