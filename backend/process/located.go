package process

import (
	"errors"
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// nameOf returns the name of the tensor that the stub calls by a number.
func (l *life) nameOf(number uint16) (string, error) {
	if int(number) >= len(l.up.list) {
		return "", broke("name", "name %d of %d", number, len(l.up.list))
	}
	return l.up.list[number], nil
}

// tensor turns a descriptor into a tensor. A refusal means that it cannot be sent
// on, but the stub has done nothing wrong; the tensor has no bytes then. Most is how
// much the stub may have lent before it is copied.
func (l *life) tensor(d *ipc.Descriptor, frame []byte, most float64) (t infer.Tensor, refusal *infer.Error, err error) {
	name, err := l.nameOf(d.Name)
	if err != nil {
		return t, nil, err
	}
	t = infer.Tensor{Name: name, DataType: infer.DataType(d.Type), Shape: d.Shape}
	err = l.locate(d, frame, most, &t)
	if errors.As(err, &refusal) {
		err = nil
	}
	return t, refusal, err
}

// locate checks a descriptor and gives the tensor its bytes. An *infer.Error
// means that the response cannot be sent, but the stub has done nothing wrong.
func (l *life) locate(d *ipc.Descriptor, frame []byte, most float64, t *infer.Tensor) error {
	if !t.DataType.Valid() {
		return broke("descriptor", "output %q has data type %d", t.Name, d.Type)
	}
	elements, ok := infer.Elements(d.Shape)
	if !ok {
		return broke("descriptor", "output %q has shape %v, whose product overflows", t.Name, d.Shape)
	}
	if t.DataType != infer.Bytes {
		want, ok := infer.ByteSize(t.DataType, d.Shape)
		if !ok || uint64(want) != d.Length {
			return broke("descriptor", "output %q of %s%s has %d bytes, want %d", t.Name, t.DataType, infer.ShapeString(d.Shape), d.Length, want)
		}
	}
	switch d.Region {
	case ipc.InFrame:
		b, err := d.InlineBytes(frame)
		if err != nil {
			return err
		}
		t.Data = b
	case ipc.InRequests:
		block, b, err := l.loans.Borrow(shm.Ticket(d.Ticket), d.Offset, d.Length)
		if err != nil {
			return broke("descriptor", "output %q: %v", t.Name, err)
		}
		t.Data, t.Memory = b, block
	case ipc.InArena:
		if err := l.borrow(d, most, t); err != nil {
			return err
		}
	}
	if t.DataType == infer.Bytes {
		if s := infer.ScanBytes(t.Data, math.MaxInt); s.Rest != 0 || int64(s.Count) != elements {
			t.Release()
			t.Data, t.Memory = nil, nil
			return broke("descriptor", "output %q of BYTES%s has %d elements and %d bytes left over", t.Name, infer.ShapeString(d.Shape), s.Count, s.Rest)
		}
	}
	return nil
}

// borrow gives a tensor its bytes where the stub has put them, or a copy: of a
// named file, which can vanish under the goroutine that writes the response, and
// where clients hold much of what the stub can lend.
func (l *life) borrow(d *ipc.Descriptor, most float64, t *infer.Tensor) error {
	arena := l.channel.Arena()
	load := arena.Load() // by others
	extent, b, err := arena.Lend(shm.Ticket(d.Ticket), d.Offset, d.Length)
	if err != nil {
		return broke("descriptor", "output %q: %v", t.Name, err)
	}
	if arena.Sealed() && load <= most {
		t.Data, t.Memory = b, extent
		return nil
	}
	t.Data, t.Memory, err = l.copies.copyOf(b, l.channel.MaxArena())
	var short *infer.Error
	if errors.As(err, &short) {
		if arena.Sealed() && load <= full {
			t.Data, t.Memory = b, extent
			return nil
		}
		extent.Release()
		return short
	}
	extent.Release()
	if err != nil {
		return broke("memory", "output %q: %v", t.Name, err)
	}
	return nil
}
