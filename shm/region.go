package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Access is this process's use of a region.
type Access uint8

// The kinds of access. WriteAlone is ReadWrite where no other process can get write access, even by
// reopening a descriptor; the kernel then also refuses Discard.
const (
	ReadOnly   Access = 0
	ReadWrite  Access = 1
	WriteAlone Access = 2
)

// Region is one shared-memory file and this process's mapping of it. The
// mapping stays until the last reference is released.
type Region struct {
	file    *os.File
	mem     []byte
	sealed  bool
	unlink  func() error // nil once the file has no name
	refs    atomic.Int32
	unnamed atomic.Bool
	gone    func() // called when the memory is unmapped; may be nil
}

// Backing creates the files of regions.
type Backing interface {
	// create creates a sparse file of size bytes. unlink removes its name, nil if it has none.
	create(size int64) (file *os.File, unlink func() error, err error)
	// seal is called when the file has been mapped for the access.
	seal(file *os.File, access Access) error
	// sealed reports whether the files can never shrink.
	sealed() bool
}

// NewRegion creates a file of the given sparse size and maps it. The caller holds the only
// reference.
func NewRegion(backing Backing, size int64, access Access) (*Region, error) {
	file, unlink, err := backing.create(size)
	if err != nil {
		return nil, err
	}
	// Mapped first and sealed after: the seal against writing lets existing mappings write, and
	// refuses later ones.
	prot := unix.PROT_READ
	if access != ReadOnly {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		err = fmt.Errorf("map %d bytes: %w", size, err)
	} else if err = backing.seal(file, access); err != nil {
		_ = unix.Munmap(mem)
	}
	if err != nil {
		if unlink != nil {
			_ = unlink()
		}
		_ = file.Close()
		return nil, err
	}
	r := &Region{file: file, mem: mem, sealed: backing.sealed(), unlink: unlink}
	r.refs.Store(1)
	return r, nil
}

// NewRegionUpTo creates a region of size bytes, or of half of that, and so on down to least, if the
// address space is limited.
func NewRegionUpTo(backing Backing, size, least int64, access Access) (*Region, error) {
	for {
		r, err := NewRegion(backing, size, access)
		if err == nil || size/2 < least {
			return r, err
		}
		size = roundUp(size/2, PageSize)
	}
}

// Size returns the sparse size in bytes.
func (r *Region) Size() int64 { return int64(len(r.mem)) }

// Sealed reports whether no process can make the mapped bytes vanish. Bytes of
// an unsealed region that another process can write are touched under Guard.
func (r *Region) Sealed() bool { return r.sealed }

// File returns the file, for a process that shares all rights.
func (r *Region) File() *os.File { return r.file }

// OpenReadOnly returns a new read-only descriptor of the file. The caller closes it.
func (r *Region) OpenReadOnly() (*os.File, error) {
	// A duplicate would share the write access, so the file is opened again.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", r.file.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open shared memory read-only: %w", err)
	}
	return f, nil
}

// Unlink removes the file's name, if it has one. It may be called again.
func (r *Region) Unlink() error {
	if r.unlink == nil || r.unnamed.Swap(true) {
		return nil
	}
	return r.unlink()
}

// Reserve allocates [offset, offset+n). After an error nothing of the range may be touched.
func (r *Region) Reserve(offset, n int64) error {
	// Touching a hole would allocate it too, but a lack of memory would then be a SIGBUS instead of
	// an error.
	for {
		err := unix.Fallocate(int(r.file.Fd()), 0, offset, n)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// Discard gives the memory of [offset, offset+n) back; it reads as zeros afterwards.
func (r *Region) Discard(offset, n int64) error {
	return unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, n)
}

// Reserved returns the allocated bytes of the file.
func (r *Region) Reserved() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.file.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}

// hole reports whether a page of [offset, offset+n) was never written.
func (r *Region) hole(offset, n uint64) (bool, error) {
	if n == 0 {
		return false, nil
	}
	at, err := unix.Seek(int(r.file.Fd()), int64(offset), unix.SEEK_HOLE)
	return uint64(at) < offset+n, err
}

// Bytes returns [offset, offset+n) of the mapping, after checking the bounds by
// subtraction.
func (r *Region) Bytes(offset, n uint64) ([]byte, error) {
	size := uint64(len(r.mem))
	if offset > size || n > size-offset {
		return nil, fmt.Errorf("range [%d, +%d) lies outside the region of %d bytes", offset, n, size)
	}
	// The capacity ends with the range, so that an append cannot write into another block.
	return r.mem[offset : offset+n : offset+n], nil
}

// OnGone makes the last Release call f. The region's creator calls it before others have the
// region.
func (r *Region) OnGone(f func()) { r.gone = f }

// Retain adds a reference. Its caller has one, or a lock under which another goroutine keeps one: a
// count that has reached 0 stays there.
func (r *Region) Retain() { r.refs.Add(1) }

// Release drops a reference; the last one unmaps and closes the file.
func (r *Region) Release() {
	switch n := r.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("shm: region released more often than retained")
	}
	// No goroutine has the region now. gone comes last: it refunds memory that the system only gets
	// back when mapping and file are closed.
	_ = r.Unlink()
	_ = unix.Munmap(r.mem)
	_ = r.file.Close()
	r.mem = nil
	if r.gone != nil {
		r.gone()
	}
}

// ErrFault means that mapped bytes have vanished: the file was truncated.
var ErrFault = errors.New("shared memory was truncated by another process")

// Guard runs f and turns a fault on mapped memory into ErrFault. Other panics
// pass through.
func Guard(f func()) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			if _, isFault := p.(interface{ Addr() uintptr }); !isFault {
				panic(p)
			}
			err = ErrFault
		}
	}()
	f()
	return nil
}
