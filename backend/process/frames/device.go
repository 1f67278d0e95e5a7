package frames

import (
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// onDevice is the place of a tensor on a device, for a stub that takes it there. name says how
// the stub knows it.
func onDevice(m *cudaipc.Memory) place {
	// Asked before the place and the loan have references of their own: the holder of the only
	// one is this request, or response, and it is about to give it away.
	whose := uint32(0)
	if m.Sole() {
		whose = ipc.SoleReader
	}
	m.Retain()
	return place{region: ipc.InDevice, offset: m.Offset(), memory: m, length: uint64(m.Size()), whose: whose}
}

// ofClient is the place of an input that its client has on a device, for a stub that takes it there.
// The stub is told of the allocation first if it is new there. The caller holds its lock.
func (e *Encoder) ofClient(c cudaipc.Client, allocation *foreign.Device, offset uint64) (place, error) {
	number, err := e.announced.Announce(allocation)
	if err != nil {
		return place{}, err
	}
	c.Retain()
	return place{region: ipc.InDevice, offset: offset, memory: c, mapped: number, length: uint64(c.Size()), whose: ipc.ClientsBytes}, nil
}

// name says by which region and number the stub knows what is on a device, and tells the
// stub of it first if it is new there. The caller holds its lock. After an error the place is
// released.
func (e *Encoder) name(p *place) error {
	m, ok := p.memory.(*cudaipc.Memory)
	if !ok {
		return nil
	}
	var err error
	if p.region, p.mapped, err = e.announced.Name(m); err != nil {
		p.release()
	}
	return err
}

// stays tells the stub that an output may stay on its device.
func (e *Encoder) stays(p *infer.Place) (n uint32) {
	index := ipc.AllOutputs
	if p.Output != "" {
		var ok bool
		if index, ok = e.names.outputIndex(p.Output); !ok {
			return 0
		}
	}
	e.wanted = append(e.wanted, ipc.Place{Name: index, Kind: ipc.PlaceDevice}) // bound: the places of a request
	return 1
}

// placeOnDevice tells the stub of a place that its client has on a device, and of the allocation first
// if it is new there. What the stub cannot be told is copied by the server. The caller holds its lock.
func (e *Encoder) placeOnDevice(p *infer.Place, c cudaipc.Client, allocation *foreign.Device, offset uint64) (n uint32) {
	name, ok := e.names.outputIndex(p.Output)
	if !ok || !e.putsThere || c.Size() == 0 {
		return 0
	}
	number, err := e.announced.Announce(allocation)
	if err != nil {
		return 0
	}
	e.wanted = append(e.wanted, ipc.Place{Name: name, Kind: ipc.PlaceAllocation, Region: number, Offset: offset, Length: uint64(c.Size())}) // bound: the places of a request
	return 1
}

// lent locates an output, or an input of a BLS request, that lies on a device.
func (d *Decoder) lent(described *ipc.Descriptor, name string, p *place, places []infer.Place) error {
	if !infer.StaysOnDevice(places, name) {
		return ipc.Broken("descriptor", "output %q lies on a device, where it may not stay", name)
	}
	if infer.DataType(described.Type) == infer.Bytes {
		return ipc.Broken("descriptor", "output %q of BYTES lies on a device", name)
	}
	if d.devices == nil {
		return ipc.Broken("descriptor", "output %q lies on a device, of which the stub lends nothing", name)
	}
	m, err := d.devices.Borrow(described.Mapping, p.ticket, p.offset, described.Length)
	if err != nil {
		return err
	}
	p.memory = m
	return nil
}
