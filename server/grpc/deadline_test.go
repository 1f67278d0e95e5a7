package grpc_test

import (
	"strconv"
	"strings"
	"testing"

	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestDeadlinesEndWithAStatus checks that a call whose deadline passes on the server first ends
// with a status, not with a reset of its stream, which clients report as CANCELLED or INTERNAL.
func TestDeadlinesEndWithAStatus(t *testing.T) {
	const want = "4 Deadline Exceeded"
	for _, timeout := range []string{"0n", "1n", "1m", "30m"} {
		t.Run("unary "+timeout, func(t *testing.T) {
			s := start(t, grpcserver.Config{}, servertest.NewCore(newWaiting(false).Model))
			c := s.raw(t)
			id := c.open(service+"ModelInfer", "grpc-timeout", timeout)
			message := encodeBench(t, int32s("waits", 1))
			c.send(id, len(message), message)
			if got := c.status(id); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
		t.Run("stream "+timeout, func(t *testing.T) {
			s := start(t, grpcserver.Config{}, servertest.NewCore(newWaiting(true).Model))
			c := s.raw(t)
			id := c.open(service+"ModelStreamInfer", "grpc-timeout", timeout)
			if got := c.status(id); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestMuchMetadataEndsItsCallAlone checks that a call with more metadata than is allowed fails, and
// its connection serves other calls.
func TestMuchMetadataEndsItsCallAlone(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	c := s.raw(t)
	good := c.open(service+"ServerLive", "x", strings.Repeat("v", 60_000))
	c.send(good, 0, nil)
	if got := c.status(good); got != "0 " {
		t.Errorf("60 kB of metadata: got %q", got)
	}
	for _, size := range []int{66_000, 100_000} {
		id := c.open(service+"ServerLive", "x", strings.Repeat("v", size))
		c.send(id, 0, nil)
		if got, want := c.status(id), "8 received initial metadata size exceeds hard limit ("; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " vs. "+strconv.Itoa(64<<10)+")") {
			t.Errorf("%d bytes of metadata: got %q, want %q", size, got, want)
		}
	}
	after := c.open(service + "ServerLive")
	c.send(after, 0, nil)
	if got := c.status(after); got != "0 " {
		t.Errorf("a call afterwards: got %q", got)
	}
	s.settled(t)
}
