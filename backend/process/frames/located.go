package frames

import (
	"errors"
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// A stub's descriptors are not trusted. A descriptor is a private copy, read from the ring once.
// Region, offset, length and ticket are checked against the loans or against the arena before a
// byte is touched. The stub can change the bytes themselves while the response lives, unless they
// were copied: the check of strings holds only for the moment, and each reader checks their lengths
// again. An output that a stub has written into its client's region is not touched here
// (shared.go).

// tensor turns a descriptor into a tensor. With a refusal the tensor cannot be used and has no
// bytes, but the stub is not at fault. most is the load of the arena beyond which outputs are
// copied; places are the wanted places of the request's outputs; kept charges for data on the heap.
func (d *Decoder) tensor(described *ipc.Descriptor, f *ipc.Frame, most float64, places []infer.Place, kept *Kept) (t infer.Tensor, refusal *infer.Error, err error) {
	name, err := d.name(described.Name)
	if err != nil {
		return t, nil, err
	}
	t = infer.Tensor{Name: name, DataType: infer.DataType(described.Type), Shape: described.Shape}
	elements, err := checkLength(&t, described)
	if err != nil {
		return t, nil, err
	}
	if (described.Region == ipc.InClient || described.Region == ipc.InDevicePlace) && t.DataType != infer.Bytes {
		t.Memory, err = d.inPlace(described, name, places)
		return t, nil, err
	}
	at, err := d.locate(described, name, f, most, places, kept)
	if err != nil {
		if own := (*infer.Error)(nil); errors.As(err, &own) {
			return t, own, nil
		}
		return t, nil, err
	}
	if t.DataType == infer.Bytes {
		if s := infer.ScanBytes(at.data, math.MaxInt); s.Rest != 0 || int64(s.Count) != elements {
			at.release()
			return t, nil, ipc.Broken("descriptor", "output %q of BYTES%s has %d elements and %d bytes left over", name, infer.ShapeString(t.Shape), s.Count, s.Rest)
		}
	}
	t.Data, t.Memory = at.data, at.memory // takes over the reference of the storage
	return t, nil, nil
}

// checkLength checks type, shape and length of a tensor against each other, and returns the number
// of elements.
func checkLength(t *infer.Tensor, described *ipc.Descriptor) (elements int64, err error) {
	if !t.DataType.Valid() {
		return 0, ipc.Broken("descriptor", "output %q has data type %d", t.Name, described.Type)
	}
	elements, ok := infer.Elements(t.Shape)
	if !ok {
		return 0, ipc.Broken("descriptor", "output %q has shape %v, whose product overflows", t.Name, t.Shape)
	}
	if t.DataType != infer.Bytes {
		want, ok := infer.ByteSize(t.DataType, t.Shape)
		if !ok || uint64(want) != described.Length {
			return 0, ipc.Broken("descriptor", "output %q of %s%s has %d bytes, want %d", t.Name, t.DataType, infer.ShapeString(t.Shape), described.Length, want)
		}
	}
	return elements, nil
}

// locate checks the location of an output's bytes and returns the storage, with a reference. An
// *infer.Error means that the bytes are unavailable at the moment, but the stub is not at fault.
func (d *Decoder) locate(described *ipc.Descriptor, name string, f *ipc.Frame, most float64, places []infer.Place, kept *Kept) (storage, error) {
	at := storage{region: described.Region, offset: described.Offset, ticket: shm.Ticket(described.Ticket)}
	switch at.region {
	case ipc.InFrame:
		data, err := described.InlineBytes(f.Body) // part of a private copy, which the tensor holds
		at.data = data
		if err != nil || kept.refusal != nil {
			return at, err
		}
		if f.Spilled {
			at.data = append(make([]byte, 0, len(data)), data...) // bound: charged
		}
		kept.Retain()
		at.memory = kept
		return at, nil
	case ipc.InRequests:
		// The stub may pass on a loan until it has returned it. The block is retained, so the
		// ticket may come back in the same frame.
		block, data, err := d.loans.Borrow(at.ticket, at.offset, described.Length)
		if err != nil {
			return at, ipc.Broken("descriptor", "output %q: %v", name, err)
		}
		at.data, at.memory = data, block
		return at, nil
	case ipc.InArena:
		err := d.borrow(&at, described.Length, name, most)
		return at, err
	case ipc.InDevice:
		err := d.lent(described, name, &at, places)
		return at, err
	}
	return at, ipc.Broken("descriptor", "output %q of %s lies in region %d", name, infer.DataType(described.Type), at.region)
}

// borrow sets the bytes of storage in the arena: the stub's own, or a copy. A copy is made of a
// named file, which can vanish while the response is written, and while clients hold much of the
// memory that the stub can lend. The stub does not reuse these bytes until the extent is released;
// with a copy that is at once.
func (d *Decoder) borrow(at *storage, length uint64, name string, most float64) error {
	arena := d.channel.Arena()
	load := arena.Load() // of the other loans
	extent, data, err := arena.Lend(at.ticket, at.offset, length)
	if err != nil {
		return ipc.Broken("descriptor", "output %q: %v", name, err)
	}
	if arena.Sealed() && load <= most {
		at.data, at.memory = data, extent
		return nil
	}
	copied, owner, err := d.copies.copyOf(data, d.channel.MaxArena())
	var short *infer.Error
	if errors.As(err, &short) && arena.Sealed() && load <= full {
		at.data, at.memory = data, extent
		return nil
	}
	extent.Release()
	switch {
	case short != nil:
		return short
	case err != nil: // the stub has truncated its file
		return ipc.Broken("memory", "output %q: %v", name, err)
	}
	at.data, at.memory = copied, owner
	return nil
}
