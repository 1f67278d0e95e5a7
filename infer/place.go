package infer

import "context"

// Place is where an output is wanted: at the beginning of a range of foreign memory, or on the
// device of its model.
type Place struct {
	Output string // "", with OnDevice, means all
	// OnDevice allows a tensor on a device, which the receiver can pass on. Memory is nil.
	OnDevice bool
	// Memory is the range. It stays the caller's, and is valid until Infer returns.
	Memory Foreign
}

// Anywhere are the Places of a request whose outputs may all stay on devices. It must not be
// changed.
var Anywhere = []Place{{OnDevice: true}}

// StaysOnDevice reports whether an output may stay on its device.
func StaysOnDevice(places []Place, output string) bool {
	for i := range places {
		if p := &places[i]; p.OnDevice && (p.Output == "" || p.Output == output) {
			return true
		}
	}
	return false
}

// Written is the Memory of an output that its backend has written to its Place. The output has a
// size and no Data; the front end only reports it to its client.
type Written struct {
	Foreign       // the range of the Place
	Bytes   int64 // written at the beginning of the range
}

// Size implements Foreign.
func (w *Written) Size() int64 { return w.Bytes }

// Copy implements Foreign.
func (w *Written) Copy(ctx context.Context) ([]byte, Memory, error) {
	data, memory, err := w.Foreign.Copy(ctx)
	if err != nil {
		return nil, nil, err
	}
	return data[:w.Bytes], memory, nil
}

// InPlace reports whether an output was written to its Place.
func (t *Tensor) InPlace() bool {
	_, ok := t.Memory.(*Written)
	return ok
}
