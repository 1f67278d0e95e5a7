package infer

import "context"

// Foreign is Memory that this process does not access in place, such as a client's region of shared
// memory: the client may change or remove it at any time. A Tensor in foreign memory has a size and
// no Data.
//
// Copying (Localize) is the only access, so that no access can be unguarded.
type Foreign interface {
	Memory
	// Size returns the number of bytes. It does not change.
	Size() int64
	// Copy returns the bytes in memory of the server, which is charged until the caller releases
	// it. It fails with an *Error if the bytes have vanished or there is no room, and with
	// Cancelled if ctx ends while it waits for another process.
	Copy(ctx context.Context) ([]byte, Memory, error)
}

// Foreign returns the foreign memory of t, or nil.
func (t *Tensor) Foreign() Foreign {
	if t.Data != nil || t.Memory == nil {
		return nil
	}
	f, _ := t.Memory.(Foreign)
	return f
}

// Size returns the tensor's size in bytes.
func (t *Tensor) Size() int64 {
	if f := t.Foreign(); f != nil {
		return f.Size()
	}
	return int64(len(t.Data))
}

// Localize copies a tensor from foreign memory into memory of the server, which replaces the
// tensor's reference. After an error the tensor is unchanged. Other tensors are not changed.
func (t *Tensor) Localize(ctx context.Context) error {
	f := t.Foreign()
	if f == nil {
		return nil
	}
	data, memory, err := f.Copy(ctx)
	if err != nil {
		return err
	}
	t.Data, t.Memory = data, memory
	f.Release()
	return nil
}

// Localize copies each input that lies in foreign memory, until one fails. The inputs stay the
// caller's, who releases them.
func (r *Request) Localize(ctx context.Context) error {
	for i := range r.Inputs {
		if err := r.Inputs[i].Localize(ctx); err != nil {
			return err
		}
	}
	return nil
}
