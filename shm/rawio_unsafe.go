package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawWrite and RawRead are write(2) and read(2) of a descriptor that does not
// block. The runtime is not told of them: it would take the processor away from
// this goroutine while another process, which the write has woken, runs in its
// place, and would wake a thread to go on with it. b must not be empty.

// RawWrite writes b and returns how much of it.
func RawWrite(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// RawRead reads at most len(b) bytes and returns how many.
func RawRead(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}
