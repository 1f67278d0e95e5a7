package shm

import (
	"errors"
	"runtime/debug"
)

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
