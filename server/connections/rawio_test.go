package connections_test

import (
	"bytes"
	"net"
	"syscall"
	"testing"

	"github.com/nereid-serving/nereid/server/connections"
)

// TestSocketsAreReadAndWrittenRaw passes short and long data through a socket, and checks the
// errors.
func TestSocketsAreReadAndWrittenRaw(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	from, err := client.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	to, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	once := func(c syscall.RawConn, f func(uintptr, []byte) (int, error), p []byte) (n int, err error) {
		if controlled := c.Control(func(fd uintptr) { n, err = f(fd, p) }); controlled != nil {
			t.Fatal(controlled)
		}
		return n, err
	}
	if n, err := once(to, connections.ReadSocket, make([]byte, 8)); n != 0 || err != syscall.EAGAIN {
		t.Errorf("nothing to read: got %d, %v; want EAGAIN", n, err)
	}
	for _, size := range []int{1, 4096, 64 << 10, 100 << 10} {
		sent := bytes.Repeat([]byte{byte(size >> 8), 7}, size)[:size]
		if n, err := once(from, connections.WriteSocket, sent); n != size || err != nil {
			t.Fatalf("write %d bytes: got %d, %v", size, n, err)
		}
		var got []byte
		for buf := make([]byte, size); len(got) < size; {
			err := to.Read(func(fd uintptr) bool {
				n, err := connections.ReadSocket(fd, buf)
				got = append(got, buf[:n]...)
				return err != syscall.EAGAIN
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("%d bytes have changed on their way", size)
		}
	}
	_ = client.Close()
	if err := to.Read(func(fd uintptr) bool {
		n, err := connections.ReadSocket(fd, make([]byte, 8))
		if err == nil && n != 0 {
			t.Errorf("after the end: got %d bytes", n)
		}
		return err != syscall.EAGAIN
	}); err != nil {
		t.Fatal(err)
	}
	for err = error(nil); err == nil; { // the client's kernel answers the first with a reset
		_, err = once(to, connections.WriteSocket, []byte("x"))
	}
	if err != syscall.EPIPE && err != syscall.ECONNRESET {
		t.Errorf("write to a closed connection: got %v", err)
	}
}
