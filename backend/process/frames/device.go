package frames

import (
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// onDevice returns the storage of a tensor on a device, for a stub that accepts it there.
// Encoder.name adds the name by which the stub knows it.
func onDevice(m *cudaipc.Memory) storage {
	// Called before the storage and the loan have references of their own: the only holder now is
	// this request or response, which is about to pass it on.
	whose := uint32(0)
	if m.Sole() {
		whose = ipc.SoleReader
	}
	m.Retain()
	return storage{region: ipc.InDevice, offset: m.Offset(), memory: m, length: uint64(m.Size()), whose: whose}
}

// ofClient returns the storage of an input in its client's device memory, for a stub that accepts
// it there. It announces a new allocation to the stub first. The caller holds its lock.
func (e *Encoder) ofClient(c cudaipc.Client, allocation *foreign.Device, offset uint64) (storage, error) {
	number, err := e.Announced.Announce(allocation)
	if err != nil {
		return storage{}, err
	}
	c.Retain()
	return storage{region: ipc.InDevice, offset: offset, memory: c, mapped: number, length: uint64(c.Size()), whose: ipc.ClientsBytes}, nil
}

// name sets the region and number by which the stub knows device memory, and announces new memory
// to the stub first. The caller holds its lock. After an error the storage is released.
func (e *Encoder) name(at *storage) error {
	m, ok := at.memory.(*cudaipc.Memory)
	if !ok {
		return nil
	}
	var err error
	if at.region, at.mapped, err = e.Announced.Name(m); err != nil {
		at.release()
	}
	return err
}

// stays tells the stub that an output may stay on its device.
func (e *Encoder) stays(p *infer.Place) (n uint32) {
	index := ipc.AllOutputs
	if p.Output != "" {
		var ok bool
		if index, ok = e.Names.outputIndex(p.Output); !ok {
			return 0
		}
	}
	e.wanted = append(e.wanted, ipc.Place{Name: index, Kind: ipc.PlaceDevice}) // bound: the places of a request
	return 1
}

// wantOnDevice sends the stub a place in its client's device memory, and announces a new
// allocation first. If the stub cannot be told, the server copies the output. The caller holds its
// lock.
func (e *Encoder) wantOnDevice(p *infer.Place, c cudaipc.Client, allocation *foreign.Device, offset uint64) (n uint32) {
	name, ok := e.Names.outputIndex(p.Output)
	if !ok || !e.PutsThere || c.Size() == 0 {
		return 0
	}
	number, err := e.Announced.Announce(allocation)
	if err != nil {
		return 0
	}
	e.wanted = append(e.wanted, ipc.Place{Name: name, Kind: ipc.PlaceAllocation, Region: number, Offset: offset, Length: uint64(c.Size())}) // bound: the places of a request
	return 1
}

// lent locates an output, or an input of a BLS request, in device memory.
func (d *Decoder) lent(described *ipc.Descriptor, name string, at *storage, places []infer.Place) error {
	if !infer.StaysOnDevice(places, name) {
		return ipc.Broken("descriptor", "output %q lies on a device, where it may not stay", name)
	}
	if infer.DataType(described.Type) == infer.Bytes {
		return ipc.Broken("descriptor", "output %q of BYTES lies on a device", name)
	}
	if d.Devices == nil {
		return ipc.Broken("descriptor", "output %q lies on a device, of which the stub lends nothing", name)
	}
	m, err := d.Devices.Borrow(described.Mapping, at.ticket, at.offset, described.Length)
	if err != nil {
		return err
	}
	at.memory = m
	return nil
}
