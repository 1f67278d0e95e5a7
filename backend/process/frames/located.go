package frames

import (
	"errors"
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// What a stub says of its tensors is not trusted. The descriptor is a private copy, read
// from the ring once; region, offset, length and ticket are checked against what was
// lent, or against the arena, before a byte is touched. The stub can change the bytes
// themselves as long as the response lives, unless they were copied: the check of
// strings holds for the moment, and each reader bounds their lengths anew. Where a stub has
// put an output into its client's region itself, no byte is touched here (shared.go).

// tensor turns a descriptor into a tensor. A refusal means that it cannot be sent
// on, but the stub has done nothing wrong; the tensor has no bytes then. Most is how
// much the stub may have lent before it is copied; places are where outputs of the request
// are wanted; kept charges for data on the heap.
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
	t.Data, t.Memory = at.data, at.memory // with the place's reference
	return t, nil, nil
}

// checkLength checks type, shape and length of a tensor against each other, and returns
// how many elements it has.
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

// locate checks where a descriptor says that the bytes of an output lie, and returns the
// place, with a reference. An *infer.Error means that they cannot be had now, but the
// stub has done nothing wrong.
func (d *Decoder) locate(described *ipc.Descriptor, name string, f *ipc.Frame, most float64, places []infer.Place, kept *Kept) (place, error) {
	p := place{region: described.Region, offset: described.Offset, ticket: shm.Ticket(described.Ticket)}
	switch p.region {
	case ipc.InFrame:
		data, err := described.InlineBytes(f.Body) // of a private copy, which the tensor keeps
		p.data = data
		if err != nil || kept.refusal != nil {
			return p, err
		}
		if f.Spilled {
			p.data = append(make([]byte, 0, len(data)), data...) // bound: charged
		}
		kept.Retain()
		p.memory = kept
		return p, nil
	case ipc.InRequests:
		// What the stub was lent it may pass on as long as it has not given it back: the
		// block is retained, so that the ticket may come back in the same frame.
		block, data, err := d.loans.Borrow(p.ticket, p.offset, described.Length)
		if err != nil {
			return p, ipc.Broken("descriptor", "output %q: %v", name, err)
		}
		p.data, p.memory = data, block
		return p, nil
	case ipc.InArena:
		err := d.borrow(&p, described.Length, name, most)
		return p, err
	case ipc.InDevice:
		err := d.lent(described, name, &p, places)
		return p, err
	}
	return p, ipc.Broken("descriptor", "output %q of %s lies in region %d", name, infer.DataType(described.Type), p.region)
}

// borrow gives a place in the arena its bytes where the stub has put them, or a copy: of
// a named file, which can vanish under the goroutine that writes the response, and where
// clients hold much of what the stub can lend. The stub does not use these bytes for
// anything else until the extent is released; with a copy that is at once.
func (d *Decoder) borrow(p *place, length uint64, name string, most float64) error {
	arena := d.channel.Arena()
	load := arena.Load() // by others
	extent, data, err := arena.Lend(p.ticket, p.offset, length)
	if err != nil {
		return ipc.Broken("descriptor", "output %q: %v", name, err)
	}
	if arena.Sealed() && load <= most {
		p.data, p.memory = data, extent
		return nil
	}
	copied, owner, err := d.copies.copyOf(data, d.channel.MaxArena())
	var short *infer.Error
	if errors.As(err, &short) && arena.Sealed() && load <= full {
		p.data, p.memory = data, extent
		return nil
	}
	extent.Release()
	switch {
	case short != nil:
		return short
	case err != nil: // the stub has truncated its file
		return ipc.Broken("memory", "output %q: %v", name, err)
	}
	p.data, p.memory = copied, owner
	return nil
}
