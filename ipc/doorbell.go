package ipc

import (
	"io"
	"os"
	"syscall"

	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// bell is this side's end of a doorbell: a pipe whose bytes mean only "look". Its end of file means
// that the other side has ended.
type bell struct {
	file *os.File
	raw  syscall.RawConn
	ring func(fd uintptr) bool
}

// pipe creates a pipe: near is this process's end, for use with the runtime's poller; far is the
// other's, blocking, to be passed on and closed here.
func pipe(nearReads bool) (near, far *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	n, f := fds[0], fds[1]
	if !nearReads {
		n, f = f, n
	}
	if err := unix.SetNonblock(n, true); err != nil {
		_ = unix.Close(n)
		_ = unix.Close(f)
		return nil, nil, os.NewSyscallError("set non-blocking", err)
	}
	return os.NewFile(uintptr(n), "bell"), os.NewFile(uintptr(f), "bell"), nil
}

func newBell(near *os.File) (*bell, error) {
	raw, err := near.SyscallConn()
	if err != nil {
		return nil, err
	}
	b := &bell{file: near, raw: raw}
	one := []byte{1}
	// Created once: a closure for each Ring would be an allocation for each frame. true tells the
	// poller not to wait for room.
	b.ring = func(fd uintptr) bool {
		// A full pipe has enough bytes to wake its reader, and the end of the reader is noticed
		// elsewhere: neither needs handling.
		_, _ = shm.RawWrite(fd, one)
		return true
	}
	return b, nil
}

// Ring wakes the other side. It never blocks.
func (b *bell) Ring() { _ = b.raw.Write(b.ring) }

// Wait sleeps until the bell rings, and takes all rings at once. It returns io.EOF when the other
// side has closed its end, os.ErrClosed when this one has.
func (b *bell) Wait(scratch []byte) error {
	var n int
	var errno syscall.Errno
	err := b.raw.Read(func(fd uintptr) bool {
		errno = unix.EINTR
		for errno == unix.EINTR {
			n, errno = shm.RawRead(fd, scratch)
		}
		return errno != unix.EAGAIN // otherwise this goroutine sleeps in the runtime's poller, without a thread
	})
	switch {
	case err != nil: // the poller's error for a closed file
		return os.ErrClosed
	case errno != 0:
		return os.NewSyscallError("read", errno)
	case n == 0:
		return io.EOF
	}
	return nil
}
