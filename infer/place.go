package infer

// Place says that an output is wanted in foreign memory, at the beginning of the range.
type Place struct {
	Output string
	// Memory is the range. Like a request's inputs it stays the caller's, and valid until
	// Infer returns.
	Memory Foreign
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
func (w *Written) Copy() ([]byte, Memory, error) {
	data, memory, err := w.Foreign.Copy()
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
