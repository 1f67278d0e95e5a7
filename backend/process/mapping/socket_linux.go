package mapping

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Socket creates the pair of sockets of a stub: the near end for a Table, and the far end for the
// stub, which the caller passes on and closes.
func Socket() (near, far *os.File, err error) {
	// Packets, so that a descriptor stays with its number.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("make socket pair for regions", err)
	}
	return os.NewFile(uintptr(fds[0]), "regions"), os.NewFile(uintptr(fds[1]), "regions"), nil
}

// hand writes a descriptor of a region, with the region's number, to the socket. It does not wait:
// the socket of a stub that does not read holds few. The caller holds mu, so the socket is not
// closed meanwhile.
func (t *Table) hand(e *entry) error {
	fd, err := e.of.region.Open(e.of.writable)
	if err != nil {
		return os.NewSyscallError("open region", err)
	}
	defer unix.Close(fd) // the packet has its own descriptor
	number := binary.LittleEndian.AppendUint32(nil, e.number)
	for {
		err = unix.Sendmsg(int(t.config.Socket.Fd()), number, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return os.NewSyscallError("send descriptor of region", err)
		}
	}
}
