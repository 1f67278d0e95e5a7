package testkit_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestPortIsReserved checks that the kernel does not assign the reserved port to other listeners,
// and that a server can listen on it twice in a row.
func TestPortIsReserved(t *testing.T) {
	port := testkit.Port(t)
	for range 200 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := l.Addr().(*net.TCPAddr).Port; got == port {
			t.Fatalf("the kernel gave out port %d, which is reserved", port)
		}
	}
	for range 2 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
