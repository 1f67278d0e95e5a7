package frames

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// What a stub may have lent, as a part of all that it can lend. Beyond crowded its
// outputs are copied as they come, so that clients that do not read hold no more
// of it; beyond full an output that cannot be copied is refused.
const (
	crowded = 0.25
	full    = 0.75
)

// copies counts the private copies of what one life of a stub has answered, in
// bytes. One block may be named by many outputs, so its own limits do not bound
// them.
type copies struct {
	heap *Heap // nil: nothing is charged
	used atomic.Int64
}

// privateCopy is the owner of memory of this process alone, which no stub can change or
// take away. Responses hold it after the end of the life too: so it refers to the copies
// of the life, and to nothing else of it. It implements infer.Memory.
type privateCopy struct {
	Kept
	of     *copies
	length int64
}

// copyOf copies b, mapped memory that may vanish meanwhile (shm.ErrFault). If
// there would be more than limit bytes of copies, or the account has no room for
// one, the error is an *infer.Error of code Unavailable.
func (c *copies) copyOf(b []byte, limit int64) ([]byte, infer.Memory, error) {
	// Counted and charged before the memory is taken: the account is that of all lives and
	// of the front ends.
	n := int64(len(b))
	if used := c.used.Add(n); used > limit {
		c.used.Add(-n)
		return nil, nil, infer.Errorf(infer.Unavailable,
			"an output needs a copy of %d bytes, but %d of the %d bytes that a stub may use are being sent", n, used-n, limit)
	}
	owner := &privateCopy{of: c, length: n}
	owner.refs.Store(1)
	if h := c.heap; h != nil {
		if err := h.take(h.Holder, budget.Replies, n); err != nil {
			c.used.Add(-n)
			refusal := infer.Errorf(infer.Unavailable, "an output needs a copy of %d bytes: %v", n, err)
			refusal.NoRoom = true
			return nil, nil, refusal
		}
		owner.account, owner.kind, owner.n = h.Account, budget.Replies, n
		owner.holder.Store(h.Holder)
	}
	private := make([]byte, n) // bound: charged, or of length limit
	// The stub may write meanwhile, so the copy may have bytes of two moments, as the
	// output itself could. What it cannot do is change the copy after it was checked.
	if err := shm.Guard(func() { copy(private, b) }); err != nil {
		owner.Release()
		return nil, nil, err
	}
	return private, owner, nil
}

// Release gives a reference up. With the last one the bytes are the garbage collector's.
func (p *privateCopy) Release() {
	if p.release() {
		p.of.used.Add(-p.length)
	}
}
