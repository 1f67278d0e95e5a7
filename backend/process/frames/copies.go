package frames

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// Thresholds for the memory that a stub has lent, as parts of all that it can lend. Beyond crowded
// its outputs are copied on arrival, so that slow clients hold no more of it. Beyond full an output
// that cannot be copied is refused.
const (
	crowded = 0.25
	full    = 0.75
)

// copies counts the bytes of private copies of the outputs of one life of a stub. Many outputs may
// name one block, so the block's own limits do not limit the copies.
type copies struct {
	heap *Heap // nil: nothing is charged
	used atomic.Int64
}

// privateCopy owns memory of this process alone, which no stub can change or remove. Responses may
// hold it after the end of the life, so it refers to the life's copies and to nothing else of the
// life. It implements infer.Memory.
type privateCopy struct {
	Kept
	of     *copies
	length int64
}

// copyOf copies b, mapped memory that may vanish meanwhile (shm.ErrFault). If there would be more
// than limit bytes of copies, or the account has no room, the error is an *infer.Error of code
// Unavailable.
func (c *copies) copyOf(b []byte, limit int64) ([]byte, infer.Memory, error) {
	// Counted and charged before the memory is allocated: all lives and the front ends share the
	// account.
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
			refusal.OutOfMemory = true
			return nil, nil, refusal
		}
		owner.account, owner.kind, owner.n = h.Account, budget.Replies, n
		owner.holder.Store(h.Holder)
	}
	private := make([]byte, n) // bound: charged, or of length limit
	// The stub may write meanwhile, so the copy may mix two states, as the output itself could. But
	// the stub cannot change the copy after it was checked.
	if err := shm.Guard(func() { copy(private, b) }); err != nil {
		owner.Release()
		return nil, nil, err
	}
	return private, owner, nil
}

// Release drops a reference.
func (p *privateCopy) Release() {
	if p.release() {
		p.of.used.Add(-p.length)
	}
}
