package testkit

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Port returns a port of 127.0.0.1 that is reserved until the test ends.
func Port(t testing.TB) int {
	t.Helper()
	port, release, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// Ports returns n ports as Port does.
func Ports(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		ports[i] = Port(t)
	}
	return ports
}

// ReservePort binds a socket to a port of 127.0.0.1 that the kernel chooses. It does not listen, so
// a server that sets SO_REUSEADDR, as Go's do, can bind and listen to the same port. Until release
// is called, the kernel gives the port to no other process that asks for any port.
func ReservePort() (port int, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = unix.Close(fd) }
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	name, nameErr := unix.Getsockname(fd)
	if err = errors.Join(err, nameErr); err != nil {
		release()
		return 0, nil, err
	}
	return name.(*unix.SockaddrInet4).Port, release, nil
}
