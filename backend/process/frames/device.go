package frames

import (
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// onDevice returns the place of a tensor on a device, for a stub that accepts it there.
// Encoder.name adds the name by which the stub knows it.
func onDevice(m *cudaipc.Memory) place {
	// Called before the place and the loan have references of their own: the only holder now is
	// this request or response, which is about to pass it on.
	whose := uint32(0)
	if m.Sole() {
		whose = ipc.SoleReader
	}
	m.Retain()
	return place{region: ipc.InDevice, offset: m.Offset(), memory: m, length: uint64(m.Size()), whose: whose}
}

// ofClient returns the place of an input in its client's device memory, for a stub that accepts it
// there. It announces a new allocation to the stub first. The caller holds its lock.
func (e *Encoder) ofClient(c cudaipc.Client, allocation *foreign.Device, offset uint64) (place, error) {
	number, err := e.announced.Announce(allocation)
	if err != nil {
		return place{}, err
	}
	c.Retain()
	return place{region: ipc.InDevice, offset: offset, memory: c, mapped: number, length: uint64(c.Size()), whose: ipc.ClientsBytes}, nil
}

// name sets the region and number by which the stub knows device memory, and announces new memory
// to the stub first. The caller holds its lock. After an error the place is released.
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

// placeOnDevice sends the stub a place in its client's device memory, and announces a new
// allocation first. If the stub cannot be told, the server copies the output. The caller holds its
// lock.
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

// lent locates an output, or an input of a BLS request, in device memory.
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
