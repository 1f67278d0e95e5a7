package server

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
)

// Budget bounds the bytes that all requests together may take: JSON texts,
// decompressed bodies, tensors. It never waits: a request that does not fit is
// refused, and the others go on.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a budget of limit bytes; 0 means half of the memory that
// this process may use.
func NewBudget(limit int64) *Budget {
	if limit <= 0 {
		limit = memory.Limit() / 2
	}
	return &Budget{limit: limit}
}

// Limit returns the size of the budget in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns the bytes that are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Take charges n bytes, or fails with an *infer.Error: of code Unavailable, or
// InvalidArg if so many are never to be had.
func (b *Budget) Take(n int64) error {
	if n > b.limit {
		return infer.Errorf(infer.InvalidArg,
			"request needs %d bytes of memory, but the server has %d for all requests together (--request-memory-byte-size)", n, b.limit)
	}
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return infer.Errorf(infer.Unavailable,
				"request needs %d bytes of memory, but %d of the server's %d bytes for requests are in use", n, used, b.limit)
		}
		if b.used.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}

// Give returns n bytes that Take has charged.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// charge is what one request has taken from a budget.
type charge struct {
	budget *Budget
	taken  int64
}

func (c *charge) take(n int64) error {
	if n <= 0 {
		return nil
	}
	if err := c.budget.Take(n); err != nil {
		return err
	}
	c.taken += n
	return nil
}

// settle gives everything back.
func (c *charge) settle() {
	if c.taken > 0 {
		c.budget.Give(c.taken)
		c.taken = 0
	}
}
