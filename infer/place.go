package infer

import "context"

// Place says that an output is wanted in foreign memory, at the beginning of the range, or that
// it may stay on the device that its model has made it on.
type Place struct {
	Output string // "", with OnDevice, means all
	// OnDevice says that the receiver of the response can pass on a tensor that lies on a device. Memory is nil.
	OnDevice bool
	// Memory is the range. Like a request's inputs it stays the caller's, and valid until
	// Infer returns.
	Memory Foreign
}

// Anywhere are the Places of a request whose outputs may all stay on devices. It is not changed.
var Anywhere = []Place{{OnDevice: true}}

// StaysOnDevice reports whether places say that an output may stay on its device.
func StaysOnDevice(places []Place, output string) bool {
	for i := range places {
		if p := &places[i]; p.OnDevice && (p.Output == "" || p.Output == output) {
			return true
		}
	}
	return false
}

// Written is the Memory of an output that its backend has put where Request.Places wants it.
// The output has a size and no Data; the front end only tells its client that it is there.
type Written struct {
	Foreign       // of the Place
	Bytes   int64 // at the beginning of the range; the rest of it is as it was
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

// InPlace reports whether an output lies where its client wants it.
func (t *Tensor) InPlace() bool {
	_, ok := t.Memory.(*Written)
	return ok
}
