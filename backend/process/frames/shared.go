package frames

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Shared is foreign memory in a client's file that a stub may map itself.
type Shared interface {
	infer.Foreign
	// Shared returns the region that the bytes lie in, and where in it they begin; nil if
	// the region may only be copied.
	Shared() (region *shm.Shared, offset int64)
	// Truncated is what its client is told when the bytes have vanished.
	Truncated() error
}

// SharedOf returns the memory of a tensor that a stub may map; nil of all other tensors.
func SharedOf(t *infer.Tensor) (s Shared, region *shm.Shared, offset int64) {
	if t.Data != nil || t.Memory == nil {
		return nil, nil, 0
	}
	s, ok := t.Memory.(Shared)
	if !ok {
		return nil, nil, 0
	}
	region, offset = s.Shared()
	if region == nil {
		return nil, nil, 0
	}
	return s, region, offset
}

// placeForeign chooses a place for a tensor in foreign memory: where it lies, if the stub
// has that mapped, else in the requests pool. The copy is for a stub that was lost, and its
// successor, after the request had passed the door: else it is made there.
func (e *Encoder) placeForeign(t *infer.Tensor, foreign infer.Foreign) (place, error) {
	if s, region, offset := SharedOf(t); s != nil && e.mapped != nil && region.Trusted() {
		if number, ok := e.mapped(region); ok {
			s.Retain()
			return place{region: ipc.InClient, offset: uint64(offset), memory: s, mapped: number, length: uint64(s.Size())}, nil
		}
	}
	data, memory, err := foreign.Copy()
	if err != nil {
		return place{}, err
	}
	copied := infer.Tensor{Data: data, Memory: memory}
	defer copied.Release()
	return e.inRequests(&copied)
}
