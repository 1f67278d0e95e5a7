package connections

import (
	"context"
	"net"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listen binds a TCP address, which reuse shares with other servers. The error of a port in use is
// syscall.EADDRINUSE.
func Listen(address string, port int, reuse bool) (net.Listener, error) {
	var cfg net.ListenConfig
	if reuse {
		cfg.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if control := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}); control != nil {
				return control
			}
			return err
		}
	}
	return cfg.Listen(context.Background(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
}

// CloseGrace is how long a front end waits during shutdown for handlers that wait for a model,
// after it has closed the connections and cancelled the contexts.
const CloseGrace = 2 * time.Second
