package infer

import "context"

// Foreign is Memory whose bytes this process does not touch where they lie, such as a
// client's region of shared memory: the client may change them at any moment, or make
// them vanish. A Tensor in foreign memory has a size and no Data.
//
// A package that needs the bytes has them copied (Localize). No other access is offered,
// so that none can go unguarded.
type Foreign interface {
	Memory
	// Size returns how many bytes there are. It does not change.
	Size() int64
	// Copy returns the bytes in memory of the server, which is charged until the caller
	// releases it. It fails with an *Error if they have vanished or there is no room.
	// Where that waits for another process it ends with ctx, with Cancelled.
	Copy(ctx context.Context) ([]byte, Memory, error)
}

// Foreign returns the foreign memory that t lies in, nil for all other tensors.
func (t *Tensor) Foreign() Foreign {
	if t.Data != nil || t.Memory == nil {
		return nil
	}
	f, _ := t.Memory.(Foreign)
	return f
}

// Size returns the tensor's bytes, wherever they lie.
func (t *Tensor) Size() int64 {
	if f := t.Foreign(); f != nil {
		return f.Size()
	}
	return int64(len(t.Data))
}

// Localize copies a tensor that lies in foreign memory into memory of the server, which
// takes the place of the tensor's reference to the foreign one. After an error the tensor
// is what it was. Other tensors stay as they are.
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

// Localize copies each input that lies in foreign memory, until one fails. The inputs
// stay the caller's, who releases what they lie in by then.
func (r *Request) Localize(ctx context.Context) error {
	for i := range r.Inputs {
		if err := r.Inputs[i].Localize(ctx); err != nil {
			return err
		}
	}
	return nil
}
