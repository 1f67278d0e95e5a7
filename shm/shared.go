package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm/foreign"
	"golang.org/x/sys/unix"
)

// Shared is a range of a client's file that stubs may map: the file belongs to the user of this
// process, and no other user can write to it. The client may change or remove the bytes at any
// time; this process does not touch them through Shared.
//
// Distrust is permanent: from then on the bytes are copied. End is called once, when no request
// uses the range and none will; the descriptor is closed after that.
type Shared struct {
	fd           int // the owner's, valid until End
	offset, size int64
	distrusted   atomic.Bool

	ending foreign.Ending // its users have mapped the range
}

// NewShared describes size bytes at offset of an open file. It returns nil unless the file belongs
// to this process's user alone. The caller calls End before it closes the descriptor.
func NewShared(fd int, offset, size int64) *Shared {
	s := &Shared{fd: fd, offset: offset, size: size}
	if !s.ours() {
		return nil
	}
	return s
}

// ours reports whether the file belongs to this process's user and no other user may write to it.
// The group's mode bits are the mask of an access control list, if the file has one.
func (s *Shared) ours() bool {
	var st unix.Stat_t
	if unix.Fstat(s.fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return int(st.Uid) == unix.Geteuid() && st.Mode&0o022 == 0
}

// Range returns the range's offset in its file, and its size.
func (s *Shared) Range() (offset, size int64) { return s.offset, s.size }

// Trusted reports whether the range may be mapped.
func (s *Shared) Trusted() bool { return !s.distrusted.Load() }

// Distrust prevents new mappings of the range and the use of existing ones.
func (s *Shared) Distrust() { s.distrusted.Store(true) }

// Short reports whether the file ends before the range does. The caller has a reference
// to the range.
func (s *Shared) Short() bool {
	var st unix.Stat_t
	return unix.Fstat(s.fd, &st) != nil || st.Size < s.offset+s.size
}

// Open opens the file again, for a process that will read it or also write it. It fails if the file
// no longer belongs to this process's user alone. The caller has a reference to the range, and
// closes the descriptor.
func (s *Shared) Open(writable bool) (fd int, err error) {
	if !s.ours() {
		return -1, unix.EPERM
	}
	flags := unix.O_RDONLY
	if writable {
		flags = unix.O_RDWR
	}
	// A duplicate would share the write access, so the file is opened again.
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.fd), flags|unix.O_CLOEXEC, 0)
}

// OnEnd makes End call gone, in any goroutine, and returns a function that cancels the call; nil if
// the range has ended.
func (s *Shared) OnEnd(gone func()) (forget func()) { return s.ending.OnEnd(gone) }

// End tells the users of the range that it is not used any more.
func (s *Shared) End() { s.ending.End() }
