package connections

import "syscall"

// ReadSocket reads once from a socket that does not block; n is 0 after an error. It uses package
// syscall, as net does: the race detector knows of data that passes through its sockets.
func ReadSocket(socket uintptr, p []byte) (n int, err error) { return again(syscall.Read, socket, p) }

// WriteSocket is ReadSocket that writes.
func WriteSocket(socket uintptr, p []byte) (n int, err error) {
	return again(syscall.Write, socket, p)
}

func again(call func(fd int, p []byte) (int, error), socket uintptr, p []byte) (n int, err error) {
	for {
		if n, err = call(int(socket), p); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
