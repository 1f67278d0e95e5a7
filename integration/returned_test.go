package integration

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestMemoryReturnsWhenConnectionsClose opens thousands of connections over both protocols. Soon
// after the last one has closed, their memory must return to the operating system, without any
// further activity.
func TestMemoryReturnsWhenConnectionsClose(t *testing.T) {
	testkit.Story(t)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	const connections = 4000
	if files.Max < 2*connections {
		testkit.Missing(t, "%d descriptors are needed, the limit is %d", 2*connections, files.Max)
	}
	plain, err := buildPlainServer()
	if err != nil {
		t.Fatal(err)
	}
	// The server without the race detector replaces the binary in launchBehind's command line.
	s := launchBehind(t, []string{"/bin/sh", "-c", `shift && exec "$0" "$@"`, plain}, testkit.Python(t).Path, t.TempDir())
	s.waitReady()
	before := testkit.ResidentBytes(t, s.cmd.Process.Pid)

	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	all := make([]net.Conn, 0, connections)
	for i := range connections {
		port, text := s.http, "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
		if i%2 == 1 {
			port, text = s.grpc, preface
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range all {
		if _, err := conn.Read(make([]byte, 9)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	peak := testkit.ResidentBytes(t, s.cmd.Process.Pid)
	for _, conn := range all {
		conn.Close()
	}
	after := int64(0)
	if !testkit.Within(30*time.Second, func() bool {
		after = testkit.ResidentBytes(t, s.cmd.Process.Pid)
		return after < before+before/2
	}) {
		t.Errorf("the server has %d MiB, had %d before and %d with %d connections", after>>20, before>>20, peak>>20, connections)
	}
	if peak < before+before/2 {
		t.Errorf("the connections took %d MiB, so that nothing is shown", (peak-before)>>20)
	}
}
