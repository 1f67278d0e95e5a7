package shm

import (
	"sync/atomic"
	"time"
)

// Block is a range of a pool, alive while it is referenced. It implements
// infer.Memory.
type Block struct {
	pool *Pool
	span *span
	n    int64
	refs atomic.Int32
	gone func() // called before the bytes are free; may be nil
}

// span is a range that the pool once cut and reuses for blocks of its class.
type span struct {
	offset   int64
	size     int64         // of the class
	reserved int64         // leading bytes that are real memory, a multiple of PageSize
	kept     int64         // leading bytes that the block needs, 0 if it is free; more may be real
	freed    time.Duration // when it became free, since the pool was made
	held     bool          // by a block
	unproven bool          // less than an eighth of it is kept
}

// Bytes returns the block's bytes. They are valid while the block is.
func (b *Block) Bytes() []byte {
	return b.pool.region.mem[b.span.offset : b.span.offset+b.n : b.span.offset+b.n]
}

// Offset returns where the block lies in its region.
func (b *Block) Offset() uint64 { return uint64(b.span.offset) }

// Len returns the block's length in bytes.
func (b *Block) Len() int { return int(b.n) }

// Real returns how many bytes of a block from Alloc are real memory: whole pages,
// and mostly all of its class.
func (b *Block) Real() int64 { return b.span.reserved }

// OnFree has f called when the last reference is given up, just before the bytes
// are free for others. It is for the block's allocator, before others have it.
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
		if b.gone != nil {
			b.gone()
		}
		b.pool.free(b.span)
	default:
		panic("shm: block released more often than retained")
	}
}
