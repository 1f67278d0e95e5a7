package frames

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/memory"
)

// Heap charges what the stub of one life has this process keep on the Go heap. A nil one
// charges nothing.
type Heap struct {
	Account *memory.Account
	Holder  *memory.Holder
	// Refused is told of each refusal. It is called by any goroutine; nil: nobody is told.
	Refused func(error)
	// Tight, if it is not nil, refuses everything: the frame that is being handled had to be
	// read although there was no room for it. Guarded by the receive lock.
	Tight error
}

// Limits returns the limits of what models may say.
func (h *Heap) Limits() *memory.Limits { return h.charge().Limits() }

// Take charges n bytes, which are given back with Give.
func (h *Heap) Take(n int64) error {
	if h == nil {
		return nil
	}
	if h.Tight != nil {
		return h.Tight
	}
	return h.take(memory.Frames, n)
}

func (h *Heap) take(kind memory.Kind, n int64) error {
	err := h.Holder.Hold(kind, n)
	if err == nil {
		if err = h.Account.Take(kind, n); err != nil {
			h.Holder.Drop(kind, n)
		}
	}
	return h.refused(err)
}

// refused passes on an error, and tells of it.
func (h *Heap) refused(err error) error {
	if err != nil && h.Refused != nil {
		h.Refused(err)
	}
	return err
}

// Give takes n bytes off that Take has charged.
func (h *Heap) Give(n int64) {
	if h != nil {
		h.Account.Give(memory.Frames, n)
		h.Holder.Drop(memory.Frames, n)
	}
}

// charge returns a Charge that is not settled: what it has taken is accounted for elsewhere.
func (h *Heap) charge() *memory.Charge {
	if h == nil {
		return nil
	}
	return &memory.Charge{Account: h.Account, Holder: h.Holder}
}

// Kept is what a response of a stub, or a request that its model makes, keeps of the Go heap:
// its frame, its strings, its small tensors and its own fields. It is charged before these are
// made. It implements infer.Memory, so that whatever holds the response or one of its tensors,
// in whichever queue, holds the charge: it is given back with the last reference.
type Kept struct {
	account *memory.Account // nil: nothing is charged
	holder  atomic.Pointer[memory.Holder]
	kind    memory.Kind
	n       int64
	refs    atomic.Int32
	// refusal is why there is no room; nothing is kept then.
	refusal *infer.Error
}

// Refusal returns why there is no room for what was to be kept; nil if there is.
func (k *Kept) Refusal() *infer.Error { return k.refusal }

// Retain adds a reference.
func (k *Kept) Retain() { k.refs.Add(1) }

// Release gives a reference up.
func (k *Kept) Release() { k.release() }

func (k *Kept) release() (last bool) {
	if k.refs.Add(-1) != 0 {
		return false
	}
	if k.account != nil && k.n > 0 {
		k.account.Give(k.kind, k.n)
		k.holder.Load().Drop(k.kind, k.n)
	}
	return true
}

// attribute has another holder answer for what is kept, from its queue on.
func (k *Kept) attribute(to *memory.Holder) error {
	if k.account == nil || k.n == 0 || k.holder.Load() == to {
		return nil
	}
	if err := to.Hold(k.kind, k.n); err != nil {
		return err
	}
	k.holder.Swap(to).Drop(k.kind, k.n)
	return nil
}

// Attribute has a holder answer for what a response keeps on the heap: the owner of the queue
// in which it waits. After an error others still answer for some of it.
func Attribute(r *infer.Response, to *memory.Holder) error {
	if k, ok := r.Held.(*Kept); ok {
		if err := k.attribute(to); err != nil {
			return err
		}
	}
	for i := range r.Outputs {
		var err error
		switch m := r.Outputs[i].Memory.(type) {
		case *Kept:
			err = m.attribute(to)
		case *privateCopy:
			err = m.attribute(to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep begins k with one reference, and charges it for n bytes.
func (h *Heap) keep(k *Kept, n int64) {
	k.refs.Store(1)
	h.more(k, n)
}

// more charges k for n bytes beyond what it has. It is for who has the only reference.
func (h *Heap) more(k *Kept, n int64) {
	if h == nil || k.refusal != nil {
		return
	}
	if err := h.Take(n); err != nil {
		k.refusal = infer.AsError(err)
		return
	}
	k.account, k.kind = h.Account, memory.Frames
	if k.n == 0 {
		k.holder.Store(h.Holder)
	}
	k.n += n
}

// What a response and a request take besides their tensors and strings, with their places in
// queues.
const (
	responseCost = 1 << 10
	requestCost  = 2 << 10
	tensorCost   = 96
)

// Keep begins what the responses of a frame keep together, with one reference, which is the
// caller's: all that comes in a frame, or of a spilled one, whose responses keep the rest each by
// itself, the error text of the batch.
func (d *Decoder) Keep(k *Kept, f *ipc.Frame, responses, text int) {
	n := int64(min(text, MaxErrorText))
	if !f.Spilled {
		n = 2*int64(len(f.Body)) + int64(responses)*responseCost // twice, as descriptors become tensors
	}
	d.heap.keep(k, n)
}

// tensorsCost is what tensors take that are made of descriptors, with the bytes that are
// copied out of their frame, or out of the arena to the heap.
func tensorsCost(list []ipc.Descriptor) (n int64) {
	for i := range list {
		d := &list[i]
		n += tensorCost + 8*int64(len(d.Shape))
		if d.Region == ipc.InFrame || d.Region == ipc.InArena && d.Length <= ipc.MaxInline {
			n += int64(min(d.Length, ipc.MaxSpilledBody)) // checked later
		}
	}
	return n
}
