package shm

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Uint32 returns the word at offset, which must be a multiple of 4 inside the region. Offsets of
// words are constants, so any other value is a bug. In a region mapped read-only the word can only
// be loaded.
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

// Locate returns the offset in the region of data, a part of the block's bytes; ok is false for
// other data.
func (b *Block) Locate(data []byte) (offset uint64, ok bool) {
	if len(data) == 0 {
		return b.Offset(), true
	}
	// Pointers are only compared as numbers.
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if at < begin || at-begin > uintptr(b.n) || uintptr(len(data)) > uintptr(b.n)-(at-begin) {
		return 0, false
	}
	return b.Offset() + uint64(at-begin), true
}

// Locate returns the offset of data in the region; ok is false for other data.
func (r *Region) Locate(data []byte) (offset uint64, ok bool) {
	if len(data) == 0 || len(r.mem) == 0 {
		return 0, false
	}
	begin, at := uintptr(unsafe.Pointer(unsafe.SliceData(r.mem))), uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if at < begin || at-begin > uintptr(len(r.mem)) || uintptr(len(data)) > uintptr(len(r.mem))-(at-begin) {
		return 0, false
	}
	return uint64(at - begin), true
}

// address returns the address of the mapping as a number.
func (r *Region) address() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))) }

// readEntries fills entries, numbers of 8 bytes in native byte order, from offset of a file; false
// on failure.
func readEntries(fd int, offset int64, entries []uint64) bool {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(entries))), 8*len(entries))
	n, err := unix.Pread(fd, raw, offset)
	return err == nil && n == len(raw)
}

// In reports whether the block belongs to pool.
func (b *Block) In(pool *Pool) bool { return b.pool == pool }
