package shm

import (
	"sync/atomic"
	"unsafe"
)

// Uint32 returns the word at offset, which must be a multiple of 4 inside the
// region: offsets of words are constants, so anything else is our own bug. In a
// region mapped read-only it can only be loaded.
func (r *Region) Uint32(offset int) *atomic.Uint32 {
	if offset%4 != 0 || offset < 0 || offset > len(r.mem)-4 {
		panic("shm: word offset out of place")
	}
	return (*atomic.Uint32)(unsafe.Pointer(&r.mem[offset]))
}

// Uint64 is Uint32 for words of 8 bytes, at multiples of 8.
func (r *Region) Uint64(offset int) *atomic.Uint64 {
	if offset%8 != 0 || offset < 0 || offset > len(r.mem)-8 {
		panic("shm: word offset out of place")
	}
	return (*atomic.Uint64)(unsafe.Pointer(&r.mem[offset]))
}

// Locate returns where data, a part of the block's bytes, lies in the region;
// ok is false if it is something else.
func (b *Block) Locate(data []byte) (offset uint64, ok bool) {
	if len(data) == 0 {
		return b.Offset(), true
	}
	// Pointers are compared as numbers only: nothing is made of them.
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if at < begin || at-begin > uintptr(b.n) || uintptr(len(data)) > uintptr(b.n)-(at-begin) {
		return 0, false
	}
	return b.Offset() + uint64(at-begin), true
}

// In reports whether the block belongs to pool.
func (b *Block) In(pool *Pool) bool { return b.pool == pool }
