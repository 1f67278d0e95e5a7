package connections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// UnixSocket has the permissions of the Unix sockets on which front ends listen.
type UnixSocket struct {
	Mode     fs.FileMode // default 0660
	UID, GID *int        // owner and group; nil: those of the server
}

// UnixPath returns the path of an address of the form unix:PATH or unix://PATH (gRPC Name
// Resolution), and whether it has that form.
func UnixPath(address string) (path string, ok bool) {
	path, ok = strings.CutPrefix(address, "unix:")
	return strings.TrimPrefix(path, "//"), ok
}

// JoinHostPort returns host:port, or the address itself if it is the path of a Unix socket.
func JoinHostPort(address string, port int) string {
	if _, ok := UnixPath(address); ok {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}

// Listen binds a TCP address, which reuse shares with other servers, or a Unix socket, whose port
// does not matter. The error of an address in use is syscall.EADDRINUSE.
func Listen(address string, port int, reuse bool, permissions UnixSocket) (net.Listener, error) {
	if path, ok := UnixPath(address); ok {
		return listenUnix(path, permissions)
	}
	var cfg net.ListenConfig
	if reuse {
		cfg.Control = control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}
	return cfg.Listen(context.Background(), "tcp", JoinHostPort(address, port))
}

// Check reports why Listen cannot use an address. An address in use is no error, because it may be
// free when Listen is called.
func Check(address string, port int) error {
	if err := CheckFree(address, port); !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	return nil
}

// CheckFree is Check for an address whose port must not be in use.
func CheckFree(address string, port int) error {
	if path, ok := UnixPath(address); ok {
		return checkUnix(path)
	}
	listener, err := Listen(address, port, false, UnixSocket{})
	if err != nil {
		return err
	}
	return listener.Close()
}

// control calls set for a socket that is not bound yet.
func control(set func(fd int) error) func(_, _ string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var err error
		if refused := raw.Control(func(fd uintptr) { err = set(int(fd)) }); refused != nil {
			return refused
		}
		return err
	}
}

// maxUnixPath is the size of sun_path without the terminating zero (unix(7)).
const maxUnixPath = 107

// checkUnix reports why no Unix socket can be created at path.
func checkUnix(path string) error {
	if path == "" || len(path) > maxUnixPath {
		return fmt.Errorf("the path of a Unix socket is %q, want 1 to %d bytes", path, maxUnixPath)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a Unix socket", path)
	}
	dir := filepath.Dir(path)
	if err := unix.Faccessat(unix.AT_FDCWD, dir+"/.", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("user %d creates a Unix socket in %s: %w", os.Geteuid(), dir, err)
	}
	return nil
}

// listenUnix binds a Unix socket. It replaces the socket of a server that has been killed. The
// listener removes the file when it is closed.
func listenUnix(path string, permissions UnixSocket) (net.Listener, error) {
	if err := checkUnix(path); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if client, err := net.Dial("unix", path); err == nil {
			_ = client.Close() // in use, as bind will say
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
	// The file is created without permissions, so that no client can connect before its mode and
	// owner are set.
	cfg := net.ListenConfig{Control: control(func(fd int) error { return unix.Fchmod(fd, 0) })}
	listener, err := cfg.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	uid, gid := -1, -1 // unchanged
	if permissions.UID != nil {
		uid = *permissions.UID
	}
	if permissions.GID != nil {
		gid = *permissions.GID
	}
	if err = os.Chown(path, uid, gid); err == nil {
		err = os.Chmod(path, cmp.Or(permissions.Mode, 0o660))
	}
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("set the permissions of a Unix socket: %w", err)
	}
	return listener, nil
}

// Client describes the other end of a connection for the log: its address, or the process at a Unix
// socket.
func Client(conn net.Conn) string {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return conn.RemoteAddr().String()
	}
	text := "a process"
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				text = fmt.Sprintf("process %d of user %d", who.Pid, who.Uid)
			}
		})
	}
	return text
}

// CloseGrace is how long a front end waits during shutdown for handlers that wait for a model,
// after it has closed the connections and cancelled the contexts.
const CloseGrace = 2 * time.Second
