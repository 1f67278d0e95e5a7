package servertest

import (
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// Blocks is the memory of a server. It counts blocks that have not been released.
type Blocks struct {
	Account    *budget.Account // nil: nothing is charged
	Lent, Made atomic.Int64
	Fail       error    // the error of Allocate and Open
	Reuses     bool     // benchmarks keep a block of each size
	reuse      sync.Map // of int to *Block
}

// Block is lent memory, a server.Filling.
type Block struct {
	refs  atomic.Int64
	owner *Blocks
	data  []byte
	real  int // charged bytes
}

// Open lends memory that is charged as it grows.
func (b *Blocks) Open(n int) (*Block, error) {
	if b.Fail != nil {
		return nil, b.Fail
	}
	b.Lent.Add(1)
	b.Made.Add(1)
	m := &Block{owner: b, data: make([]byte, n)}
	m.refs.Store(1)
	return m, nil
}

// Bytes implements server.Filling, with Grow, Retain and Release.
func (m *Block) Bytes() []byte { return m.data }

func (m *Block) Grow(n int) error {
	if n > m.real && m.owner.Account != nil {
		if err := m.owner.Account.Take(budget.Blocks, int64(n-m.real)); err != nil {
			return err
		}
		m.real = n
	}
	return nil
}

// Allocate is a server.Allocator.
func (b *Blocks) Allocate(n int) ([]byte, infer.Memory, error) {
	if b.Fail != nil {
		return nil, nil, b.Fail
	}
	b.Lent.Add(1)
	b.Made.Add(1)
	if old, ok := b.reuse.LoadAndDelete(n); ok {
		m := old.(*Block)
		m.refs.Store(1)
		return m.data, m, nil
	}
	m := &Block{owner: b, data: make([]byte, n)}
	m.refs.Store(1)
	if err := m.Grow(n); err != nil {
		b.Lent.Add(-1)
		return nil, nil, err
	}
	return m.data, m, nil
}

func (m *Block) Retain() { m.refs.Add(1) }
func (m *Block) Release() {
	switch n := m.refs.Add(-1); {
	case n == 0:
		if m.owner.Reuses {
			m.owner.reuse.Store(len(m.data), m)
		} else {
			clear(m.data) // makes late readers visible
		}
		if m.owner.Account != nil {
			m.owner.Account.Give(budget.Blocks, int64(m.real))
		}
		m.owner.Lent.Add(-1)
	case n < 0:
		panic("block released too often")
	}
}

// Leave takes all but n bytes of a kind until free is called.
func Leave(a *budget.Account, k budget.Kind, n int64) (free func()) {
	taken := a.Most(k) - n
	a.Must(k, taken)
	return func() { a.Give(k, taken) }
}
