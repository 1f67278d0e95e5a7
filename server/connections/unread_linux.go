package connections

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Unread reports whether a client has sent bytes that the server has not read. Its connection is
// not idle: a request may be on its way, and the client would take it for lost.
func Unread(socket syscall.Conn) bool {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	unread := 0
	err = raw.Control(func(fd uintptr) {
		unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	})
	return err == nil && unread > 0
}
