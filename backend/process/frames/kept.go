package frames

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// Heap charges memory on this process's Go heap to the stub of one life. A nil Heap charges
// nothing.
type Heap struct {
	Account *budget.Account
	Holder  *budget.Holder
	// Refused is called with each refusal, by any goroutine. It may be nil.
	Refused func(error)
	// Tight, if not nil, refuses everything: there is no memory for the present frame, which is
	// read anyway. Guarded by the receive lock.
	Tight error
	// noArena is why the stub last got no memory for outputs, if that is its model's share. Guarded
	// by the receive lock.
	noArena error
}

// Limits returns the limits for requests of models.
func (h *Heap) Limits() *budget.Limits { return h.charge(&Kept{}).Limits() }

// Take charges n bytes, which Give gives back.
func (h *Heap) Take(n int64) error {
	if h == nil {
		return nil
	}
	if h.Tight != nil {
		return h.Tight
	}
	return h.take(h.Holder, budget.Frames, n)
}

func (h *Heap) take(holder *budget.Holder, kind budget.Kind, n int64) error {
	err := holder.Hold(kind, n)
	if err == nil {
		if err = h.Account.Take(kind, n); err != nil {
			holder.Drop(kind, n)
		}
	}
	return h.refused(err)
}

// refused calls Refused with an error and returns the error.
func (h *Heap) refused(err error) error {
	if err != nil && h.Refused != nil {
		h.Refused(err)
	}
	return err
}

// Give gives back n bytes that Take has charged.
func (h *Heap) Give(n int64) {
	if h != nil {
		h.Account.Give(budget.Frames, n)
		h.Holder.Drop(budget.Frames, n)
	}
}

// TakeArena charges n bytes that the stub wants to reserve for outputs, and reports whether it may.
// The caller holds the receive lock. It logs no refusal: the stub may have asked for more than it
// needs.
func (h *Heap) TakeArena(n int64) bool {
	if err := h.Holder.Hold(budget.Arenas, n); err != nil {
		h.noArena = err
		return false
	}
	if h.Account.Take(budget.Arenas, n) == nil {
		return true
	}
	h.Holder.Drop(budget.Arenas, n)
	h.noArena = nil
	return false
}

// GiveArena gives back n bytes that TakeArena has charged.
func (h *Heap) GiveArena(n int64) {
	h.Account.Give(budget.Arenas, n)
	h.Holder.Drop(budget.Arenas, n)
}

// charge returns a Charge that the caller need not settle: k gives its bytes back.
func (h *Heap) charge(k *Kept) *budget.Charge {
	if h == nil {
		return nil
	}
	return &budget.Charge{Account: h.Account, Holder: k.holder.Load()}
}

// Kept is the heap memory of a response, or of a BLS request: its frame, strings, small tensors and
// own fields. It is charged before these are allocated, and given back with the last reference. It
// implements infer.Memory, so a queue that holds the response, or one of its tensors, holds the
// charge.
type Kept struct {
	account *budget.Account // nil: nothing is charged
	holder  atomic.Pointer[budget.Holder]
	kind    budget.Kind
	n       int64
	refs    atomic.Int32
	// refusal is why the memory was refused; nothing is kept then.
	refusal *infer.Error
}

// Refusal returns why the memory was refused, or nil.
func (k *Kept) Refusal() *infer.Error { return k.refusal }

// Retain adds a reference.
func (k *Kept) Retain() { k.refs.Add(1) }

// Release drops a reference.
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

// CountFor sets a holder, within that of the life, for the memory. It is called before k begins.
func (k *Kept) CountFor(holder *budget.Holder) { k.holder.Store(holder) }

// attribute moves the bytes to another holder.
func (k *Kept) attribute(to *budget.Holder) error {
	if k.account == nil || k.n == 0 || k.holder.Load() == to {
		return nil
	}
	if err := to.Hold(k.kind, k.n); err != nil {
		return err
	}
	k.holder.Swap(to).Drop(k.kind, k.n)
	return nil
}

// Attribute moves the heap memory of a response to another holder, the owner of the queue in which
// the response waits. After an error some of it may have moved.
func Attribute(r *infer.Response, to *budget.Holder) error {
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

// keep charges n bytes and begins k with one reference.
func (h *Heap) keep(k *Kept, n int64) {
	k.refs.Store(1)
	if h == nil || k.refusal != nil {
		return
	}
	if k.holder.Load() == nil {
		k.holder.Store(h.Holder)
	}
	err := h.Tight
	if err == nil {
		err = h.take(k.holder.Load(), budget.Frames, n)
	}
	if err != nil {
		k.refusal = infer.AsError(err)
		return
	}
	k.account, k.kind, k.n = h.Account, budget.Frames, n
}

// Bytes of a response, a request and a tensor without data and strings, including their entries in
// queues.
const (
	responseCost = 1 << 10
	requestCost  = 2 << 10
	tensorCost   = 96
)

// Keep charges the memory that all responses of a frame share and begins k with one reference,
// which is the caller's. Responses of a spilled frame share only the error text of the batch:
// Response charges each of them for the rest.
func (d *Decoder) Keep(k *Kept, f *ipc.Frame, responses, text int) {
	n := int64(min(text, MaxErrorText))
	if !f.Spilled {
		n = 2*int64(len(f.Body)) + int64(responses)*responseCost // twice, as descriptors become tensors
	}
	d.heap.keep(k, n)
}

// tensorsCost returns the memory of the tensors that descriptors describe, with the data that is
// copied to the heap from their frame or from the arena.
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
