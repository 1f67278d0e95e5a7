package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// patience is how long a test waits for a datagram.
const patience = time.Minute

// listen opens a service manager's socket. next returns its next datagram.
func listen(t *testing.T, name string) (address string, next func() string) {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return name, func() string {
		t.Helper()
		buffer := make([]byte, 4096)
		_ = socket.SetReadDeadline(time.Now().Add(patience))
		n, err := socket.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
}

func env(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestManagerIsToldFromStartToEnd(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@nereid-test-%d", os.Getpid())} {
		address, next := listen(t, name)
		t.Setenv("NOTIFY_SOCKET", address)
		t.Setenv("WATCHDOG_USEC", "20000")
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		m := Open(os.Getenv, zerolog.Nop())
		for _, v := range variables {
			if value, there := os.LookupEnv(v); there {
				t.Errorf("%s is still %q: models would inherit it", v, value)
			}
		}
		if got := next(); got != "STATUS=Loading models\nEXTEND_TIMEOUT_USEC=30000000" {
			t.Errorf("at the start: got %q", got)
		}
		var fails atomic.Bool
		failed := make(chan struct{}, 1)
		m.Ready("Serving 2 models", func(context.Context) error {
			if fails.Load() {
				select {
				case failed <- struct{}{}:
				default:
				}
				return errors.New("no answer")
			}
			return nil
		})
		if got := next(); got != "READY=1\nSTATUS=Serving 2 models" {
			t.Errorf("when it is ready: got %q", got)
		}
		for range 3 {
			if got := next(); got != "WATCHDOG=1" {
				t.Errorf("while the probe succeeds: got %q", got)
			}
		}
		fails.Store(true)
		<-failed
		<-failed // from the second call on, no success is still being reported
		m.Stopping(35 * time.Second)
		got := next()
		for got == "WATCHDOG=1" { // sent earlier
			got = next()
		}
		if !strings.HasPrefix(got, "STOPPING=1\nSTATUS=") || !strings.HasSuffix(got, "\nEXTEND_TIMEOUT_USEC=35000000") {
			t.Errorf("when it ends: got %q", got)
		}
		m.Ready("too late", nil)
		m.Close()
		m.send(stopping, "LAST=1") // the socket is closed: sending fails without blocking
	}
}

// TestNothingIsToldWithoutAManager checks that the server sends nothing without NOTIFY_SOCKET, and
// that a missing socket does not stop it.
func TestNothingIsToldWithoutAManager(t *testing.T) {
	for _, variables := range []map[string]string{nil, {"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "none")}} {
		m := Open(env(variables), zerolog.Nop())
		if m != nil {
			t.Errorf("%v: got a manager", variables)
		}
		m.Ready("", nil)
		m.Stopping(0)
		m.Close()
	}
}

func TestWatchdogOfAnotherProcess(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, test := range []struct {
		us, pid string
		want    time.Duration
	}{
		{"2000000", "", 2 * time.Second}, {"2000000", own, 2 * time.Second}, {"2000000", "1", 0}, {"", own, 0}, {"0", own, 0}, {"-1", own, 0}, {"x", own, 0},
	} {
		if got := watchdog(env(map[string]string{"WATCHDOG_USEC": test.us, "WATCHDOG_PID": test.pid})); got != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
	}
}

// TestManagerThatDoesNotReadHoldsNothingUp fills the queue of a manager that does not read, and
// checks that the server does not block.
func TestManagerThatDoesNotReadHoldsNothingUp(t *testing.T) {
	address, _ := listen(t, filepath.Join(t.TempDir(), "notify"))
	var log testkit.Buffer
	m := Open(env(map[string]string{"NOTIFY_SOCKET": address}), zerolog.New(&log))
	defer m.Close()
	testkit.Eventually(t, patience, func() bool {
		m.send(starting, "STATUS=again")
		return strings.Contains(log.String(), "was not notified")
	})
	m.Stopping(time.Second)
}
