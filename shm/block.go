package shm

import (
	"time"

	"github.com/nereid-serving/nereid/shm/foreign"
)

// Block is a range of a pool that lives while it is referenced. It implements infer.Memory.
type Block struct {
	foreign.References

	pool *Pool
	span *span
	n    int64
	gone func() // called before the bytes are free; may be nil
}

// span is a range of the pool, reused for blocks of its class.
type span struct {
	offset   int64
	size     int64         // of the class
	reserved int64         // leading allocated bytes, a multiple of PageSize
	kept     int64         // leading bytes that the block needs, 0 if free; more may be allocated
	freed    time.Duration // time of its release since the pool was created
	held     bool          // by a block
	unproven bool          // less than an eighth of it is kept
}

// Bytes returns the block's bytes. They are valid while the block is.
func (b *Block) Bytes() []byte {
	return b.pool.region.mem[b.span.offset : b.span.offset+b.n : b.span.offset+b.n]
}

// Offset returns the block's offset in its region.
func (b *Block) Offset() uint64 { return uint64(b.span.offset) }

// Len returns the block's length in bytes.
func (b *Block) Len() int { return int(b.n) }

// Real returns the allocated bytes of a block from Alloc: whole pages, and usually its whole class
// size.
func (b *Block) Real() int64 { return b.span.reserved }

// OnFree makes the last Release call f, just before the bytes are free for others. The block's
// allocator calls it before others have the block.
func (b *Block) OnFree(f func()) { b.gone = f }

// Release drops a reference; after the last one the bytes are free.
func (b *Block) Release() {
	if !b.Drop() {
		return
	}
	if b.gone != nil {
		b.gone()
	}
	b.pool.free(b.span)
}
