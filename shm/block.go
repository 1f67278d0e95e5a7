package shm

import "sync/atomic"

// Block is a range of a pool, alive while it is referenced. It implements
// infer.Memory.
type Block struct {
	pool *Pool
	span *span
	n    int64
	refs atomic.Int32
	gone func() // called when the bytes are free; may be nil
}

// span is a range that the pool once cut and reuses for blocks of its class.
type span struct {
	offset   int64
	size     int64 // of the class
	reserved int64 // leading bytes that are real memory, a multiple of PageSize
	freed    int64 // when it became free, ns since 1970
	held     bool  // by a block
}

// Bytes returns the block's bytes. They are valid while the block is.
func (b *Block) Bytes() []byte {
	return b.pool.region.mem[b.span.offset : b.span.offset+b.n : b.span.offset+b.n]
}

// Offset returns where the block lies in its region.
func (b *Block) Offset() uint64 { return uint64(b.span.offset) }

// Len returns the block's length in bytes.
func (b *Block) Len() int { return int(b.n) }

// OnFree has f called when the last reference is given up and the bytes are free.
// Whoever allocated the block says so before others have it.
func (b *Block) OnFree(f func()) { b.gone = f }

// Retain adds a reference.
func (b *Block) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("shm: block retained after its last release")
	}
}

// Release gives a reference up; after the last one the bytes are free.
func (b *Block) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
	case n == 0:
		b.pool.free(b.span)
		if b.gone != nil {
			b.gone()
		}
	default:
		panic("shm: block released more often than retained")
	}
}
