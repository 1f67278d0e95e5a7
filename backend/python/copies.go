package python

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// copies counts the private copies of what one life of a stub has answered from
// a named region, in bytes. One block may be named by many outputs, so its own
// limits do not bound them.
type copies struct{ used atomic.Int64 }

// privateCopy is memory of this process alone. It implements infer.Memory.
type privateCopy struct {
	of   *copies
	n    int64
	refs atomic.Int32
}

// copyOf copies b, mapped memory that may vanish meanwhile (shm.ErrFault). If
// there would be more than limit bytes of copies the error is an *infer.Error of
// code Unavailable.
func (c *copies) copyOf(b []byte, limit int64) ([]byte, infer.Memory, error) {
	n := int64(len(b))
	if used := c.used.Add(n); used > limit {
		c.used.Add(-n)
		return nil, nil, infer.Errorf(infer.Unavailable,
			"an output needs a copy of %d bytes, but %d of the %d bytes that a stub may use are being sent", n, used-n, limit)
	}
	memory := &privateCopy{of: c, n: n}
	memory.refs.Store(1)
	private := make([]byte, n)
	if err := shm.Guard(func() { copy(private, b) }); err != nil {
		memory.Release()
		return nil, nil, err
	}
	return private, memory, nil
}

func (p *privateCopy) Retain() { p.refs.Add(1) }

func (p *privateCopy) Release() {
	if p.refs.Add(-1) == 0 {
		p.of.used.Add(-p.n)
	}
}
