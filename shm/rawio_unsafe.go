package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawWrite and RawRead are write(2) and read(2) of a non-blocking descriptor. The runtime does not
// know of them: it would take the processor away from this goroutine while another process, woken
// by the write, runs instead, and would wake a thread to continue it. b must not be empty.

// RawWrite writes b and returns the number of bytes written.
func RawWrite(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// RawRead reads at most len(b) bytes and returns their number.
func RawRead(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}
