package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm/foreign"
	"golang.org/x/sys/unix"
)

// Shared is a range of a client's file that stubs may map themselves: the file belongs to
// the user of this process, and no other user may write into it. The bytes are the
// client's, who may write them or take them away at any moment; this process does not
// touch them by way of Shared.
//
// States: it begins open. Distrust is for good: from then on its bytes are copied. End is
// called once, when no request uses the range any more and none will; the descriptor is
// closed behind it.
type Shared struct {
	fd           int // the owner's, valid up to End
	offset, size int64
	distrusted   atomic.Bool

	ending foreign.Ending // its users have the range mapped somewhere
}

// NewShared describes size bytes at offset of an open file. It is nil if the file is not of
// this process's user alone. The caller calls End before it closes the descriptor.
func NewShared(fd int, offset, size int64) *Shared {
	s := &Shared{fd: fd, offset: offset, size: size}
	if !s.ours() {
		return nil
	}
	return s
}

// ours reports whether the file belongs to our user and no other may write into it. The
// bits of the group are the mask of an access control list, where the file has one.
func (s *Shared) ours() bool {
	var st unix.Stat_t
	if unix.Fstat(s.fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return int(st.Uid) == unix.Geteuid() && st.Mode&0o022 == 0
}

// Range returns where the range begins in its file, and its bytes.
func (s *Shared) Range() (offset, size int64) { return s.offset, s.size }

// Trusted reports whether the range may be mapped.
func (s *Shared) Trusted() bool { return !s.distrusted.Load() }

// Distrust keeps the range from being mapped, and from being used where it is mapped.
func (s *Shared) Distrust() { s.distrusted.Store(true) }

// Short reports whether the file ends before the range does. The caller has a reference
// to the range.
func (s *Shared) Short() bool {
	var st unix.Stat_t
	return unix.Fstat(s.fd, &st) != nil || st.Size < s.offset+s.size
}

// Open opens the file again, for a process that is to read it alone, or also to write it.
// It fails if the file is not of our user alone any more. The caller has a reference to the
// range, and closes the descriptor.
func (s *Shared) Open(writable bool) (fd int, err error) {
	if !s.ours() {
		return -1, unix.EPERM
	}
	flags := unix.O_RDONLY
	if writable {
		flags = unix.O_RDWR
	}
	// A duplicate would share the right to write. This opens the file anew.
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.fd), flags|unix.O_CLOEXEC, 0)
}

// OnEnd has gone called when the range ends, by any goroutine, and returns a function that
// takes that back; nil if the range has ended.
func (s *Shared) OnEnd(gone func()) (forget func()) { return s.ending.OnEnd(gone) }

// End tells those that have the range mapped that it is not used any more.
func (s *Shared) End() { s.ending.End() }
