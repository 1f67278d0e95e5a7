package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Access says what this process does with a region.
type Access uint8

// The ways to map a region. WriteAlone is ReadWrite where no process gets another way
// to write, whichever descriptor it has and opens again; the kernel then refuses
// Discard as well.
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
	gone    func() // called when the memory has gone; may be nil
}

// Backing makes the files of regions.
type Backing interface {
	// create makes an empty file of size bytes, all of them a hole. unlink takes
	// its name away, nil if it has none.
	create(size int64) (file *os.File, unlink func() error, err error)
	// seal is called when the file has been mapped for the access.
	seal(file *os.File, access Access) error
	// sealed reports whether the files can never shrink.
	sealed() bool
}

// NewRegion makes a file of the given sparse size and maps it whole. The
// caller holds the only reference.
func NewRegion(backing Backing, size int64, access Access) (*Region, error) {
	file, unlink, err := backing.create(size)
	if err != nil {
		return nil, err
	}
	// Mapped first and sealed after: the seal against writing lets a mapping that is there
	// write on, and refuses all later ones.
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

// NewRegionUpTo makes a region of size bytes, or of half of that, and so on
// down to least, where the address space is limited.
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

// File returns the file, to be passed to a process that shares all rights.
func (r *Region) File() *os.File { return r.file }

// OpenReadOnly returns a new descriptor of the file that cannot write it. The
// caller closes it.
func (r *Region) OpenReadOnly() (*os.File, error) {
	// A duplicate would share the right to write. This opens the file anew.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", r.file.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open shared memory read-only: %w", err)
	}
	return f, nil
}

// Unlink takes the file's name away, if it has one. It may be called again.
func (r *Region) Unlink() error {
	if r.unlink == nil || r.unnamed.Swap(true) {
		return nil
	}
	return r.unlink()
}

// Reserve makes [offset, offset+n) real memory. After an error nothing of the
// range may be touched.
func (r *Region) Reserve(offset, n int64) error {
	// Touching a hole would do it too, but where memory is short a touch is a SIGBUS, and
	// this is an error.
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

// Discard gives the memory of [offset, offset+n) back; it reads as zeros after.
func (r *Region) Discard(offset, n int64) error {
	return unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, n)
}

// Reserved returns how many bytes of the file are real memory.
func (r *Region) Reserved() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.file.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}

// hole reports whether some page of [offset, offset+n) was never written.
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
	// The capacity ends with the range, so that an append cannot write on into what
	// belongs to another block.
	return r.mem[offset : offset+n : offset+n], nil
}

// OnGone has f called when the last reference has been given up. It is for the
// region's maker, before others have it.
func (r *Region) OnGone(f func()) { r.gone = f }

// Retain adds a reference. Its caller has one, or a lock under which another goroutine
// keeps one: a count that has been 0 stays there.
func (r *Region) Retain() { r.refs.Add(1) }

// Release gives a reference up; the last one unmaps and closes the file.
func (r *Region) Release() {
	switch n := r.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("shm: region released more often than retained")
	}
	// No goroutine has the region now. gone comes last: it refunds memory that the system
	// has back only when mapping and file are closed.
	_ = r.Unlink()
	_ = unix.Munmap(r.mem)
	_ = r.file.Close()
	r.mem = nil
	if r.gone != nil {
		r.gone()
	}
}

// ErrFault says that mapped bytes have vanished: the file was truncated.
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
