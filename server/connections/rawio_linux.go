package connections

import (
	"syscall"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/shm"
)

// ShortBytes is the most bytes of a call that the Go runtime is not told of. It takes some 20 µs,
// for which the garbage collector and the other goroutines of this processor wait.
const ShortBytes = 64 << 10

// ReadSocket reads once from a socket that does not block. The Go runtime is not told of a call of
// at most ShortBytes: it would be ready to give the processor of this goroutine away, which
// costs more CPU, above all in its monitor thread. It is told if memory is scarce, because then the
// call may take long, and the garbage collector would wait for it. n is 0 after an error.
func ReadSocket(socket uintptr, p []byte) (n int, err error) {
	return transfer(shm.RawRead, syscall.Read, socket, p)
}

// WriteSocket is ReadSocket that writes.
func WriteSocket(socket uintptr, p []byte) (n int, err error) {
	return transfer(shm.RawWrite, syscall.Write, socket, p)
}

func transfer(raw func(uintptr, []byte) (int, syscall.Errno), known func(int, []byte) (int, error), socket uintptr, p []byte) (n int, err error) {
	for {
		if len(p) > rawMost || budget.Scarce() {
			n, err = known(int(socket), p)
		} else if done, errno := raw(socket, p); errno != 0 {
			n, err = 0, errno
		} else {
			n, err = done, nil
		}
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
