package frames

import (
	"context"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Shared is foreign memory in a client's file that a stub may map itself.
type Shared interface {
	infer.Foreign
	// Shared returns the region that holds the bytes, and their offset in it; nil if the region may
	// only be copied.
	Shared() (region *shm.Shared, offset int64)
	// Truncated returns the client's error for bytes that have vanished.
	Truncated() error
}

// SharedOf returns the memory of a tensor that a stub may map; nil for all other tensors.
func SharedOf(t *infer.Tensor) (s Shared, region *shm.Shared, offset int64) {
	if t.Data != nil || t.Memory == nil {
		return nil, nil, 0
	}
	return sharedIn(t.Memory)
}

// SharedAt returns the memory of a place if a stub may map it; nil for all other places.
func SharedAt(p *infer.Place) (s Shared, region *shm.Shared, offset int64) { return sharedIn(p.Memory) }

func sharedIn(memory infer.Memory) (s Shared, region *shm.Shared, offset int64) {
	s, ok := memory.(Shared)
	if !ok {
		return nil, nil, 0
	}
	region, offset = s.Shared()
	if region == nil {
		return nil, nil, 0
	}
	return s, region, offset
}

// foreignStorage chooses storage for a tensor in foreign memory: its own if the stub has mapped it,
// otherwise the requests pool. The copy is for the successor of a stub that was lost after the
// request had passed the door; otherwise the copy is made there.
func (e *Encoder) foreignStorage(t *infer.Tensor, foreign infer.Foreign) (storage, error) {
	if e.TakesDevices {
		if m := cudaipc.Of(t); m != nil {
			p := onDevice(m)
			return p, e.name(&p)
		}
		if c, allocation, offset := cudaipc.OfClient(t); c != nil {
			return e.ofClient(c, allocation, offset)
		}
	}
	if s, region, offset := SharedOf(t); s != nil && e.Mapped != nil && region.Trusted() {
		if number, ok := e.Mapped(region, false); ok {
			s.Retain()
			return storage{region: ipc.InClient, offset: uint64(offset), memory: s, mapped: number, length: uint64(s.Size())}, nil
		}
	}
	data, memory, err := foreign.Copy(context.Background()) // the request's context is not available here; the copy is limited
	if err != nil {
		return storage{}, err
	}
	copied := infer.Tensor{Data: data, Memory: memory}
	defer copied.Release()
	return e.inRequests(&copied)
}

// WriteFrom is the minimum size of an output that a stub writes into its client's region. It is
// WRITE_MIN in regions.py.
const WriteFrom = 64 << 10

// wantedPlaces chooses the places of a request's outputs to which the stub can write directly.
// Nothing is lent: the request holds the places until it is answered, and the stub's claims are
// checked against them (Decoder.inPlace).
func (e *Encoder) wantedPlaces(r *infer.Request) (n uint32) {
	for i := range r.Places {
		p := &r.Places[i]
		if p.OnDevice {
			n += e.stays(p)
			continue
		}
		if c, allocation, offset := cudaipc.ClientAt(p); c != nil {
			n += e.wantOnDevice(p, c, allocation, offset)
			continue
		}
		if e.Mapped == nil {
			continue
		}
		s, region, offset := SharedAt(p)
		if s == nil || !region.Trusted() || s.Size() < WriteFrom {
			continue
		}
		name, ok := e.Names.outputIndex(p.Output)
		if !ok {
			continue
		}
		if number, ok := e.Mapped(region, true); ok {
			e.wanted = append(e.wanted, ipc.Place{Name: name, Region: number, Offset: uint64(offset), Length: uint64(s.Size())}) // bound: the places of a request
			n++
		}
	}
	return n
}

// inPlace returns the memory of an output that the stub says it has written to its client's place.
// The supervisor touches none of the bytes, and their content is the model's word in any case. So
// it is enough that place and length belong to this request: the stub cannot make its client
// believe anything about memory that the client has not named for this output.
func (d *Decoder) inPlace(described *ipc.Descriptor, name string, places []infer.Place) (infer.Memory, error) {
	for i := range places {
		p := &places[i]
		if p.Output != name || p.Memory == nil {
			continue
		}
		number, offset, ok := d.numberOf(p, described.Region)
		if !ok || number != described.Mapping {
			continue
		}
		if described.Offset != offset || described.Length > uint64(p.Memory.Size()) || described.Ticket != 0 {
			return nil, ipc.Broken("descriptor", "output %q was written to [%d, +%d) of region %d, want [%d, +%d) and no ticket",
				name, described.Offset, described.Length, described.Mapping, offset, p.Memory.Size())
		}
		p.Memory.Retain()
		return &infer.Written{Foreign: p.Memory, Bytes: int64(described.Length)}, nil
	}
	return nil, ipc.Broken("descriptor", "output %q was written to region %d, where it is not wanted", name, described.Mapping)
}

// numberOf returns the number by which the stub knows a place's memory, and the place's offset in
// it; false if the memory is not of this region's kind, or unknown to the stub.
func (d *Decoder) numberOf(p *infer.Place, region uint32) (number uint32, offset uint64, ok bool) {
	if region == ipc.InDevicePlace {
		c, allocation, offset := cudaipc.ClientAt(p)
		if c == nil || d.Announced == nil {
			return 0, 0, false
		}
		number, ok = d.Announced.Number(allocation)
		return number, offset, ok
	}
	s, file, begin := SharedAt(p)
	if s == nil || d.Mapped == nil {
		return 0, 0, false
	}
	number, ok = d.Mapped(file, true)
	return number, uint64(begin), ok
}
