package connections_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nereid-serving/nereid/server/connections"
)

func TestUnixPath(t *testing.T) {
	for address, want := range map[string]string{
		"unix:/run/n.sock": "/run/n.sock", "unix:///run/n.sock": "/run/n.sock", "unix:n.sock": "n.sock", "unix:": "",
	} {
		if path, ok := connections.UnixPath(address); path != want || !ok || connections.JoinHostPort(address, 8000) != address {
			t.Errorf("%s: got %q, %v", address, path, ok)
		}
	}
	for _, address := range []string{"", "0.0.0.0", "::1", "unix"} {
		if path, ok := connections.UnixPath(address); ok {
			t.Errorf("%s: got the path %q", address, path)
		}
	}
	if got := connections.JoinHostPort("::1", 8000); got != "[::1]:8000" {
		t.Errorf("got %s", got)
	}
}

func TestUnixSocketsHaveTheirPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.sock")
	uid, gid := os.Getuid(), os.Getgid()
	for _, test := range []struct {
		permissions connections.UnixSocket
		want        os.FileMode
	}{
		{connections.UnixSocket{}, 0o660},
		{connections.UnixSocket{Mode: 0o606, UID: &uid, GID: &gid}, 0o606},
	} {
		listener, err := connections.Listen("unix:"+path, 8000, true, test.permissions)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != test.want {
			t.Errorf("got %v, %v, want the permissions %v", info, err, test.want)
		}
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := connections.Client(accepted); !strings.HasPrefix(got, "process ") {
			t.Errorf("the client is described as %q, want its process", got)
		}
		_, _ = client.Close(), accepted.Close()
		_ = listener.Close()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("after Close: got %v, want no file", err)
		}
	}
}

func TestUnixSocketsInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.sock")
	listen := func() (net.Listener, error) {
		return connections.Listen("unix:"+path, 0, false, connections.UnixSocket{})
	}
	first, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("beside another server: got %v, want EADDRINUSE", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as if the server had been killed
	_ = first.Close()
	second, err := listen()
	if err != nil {
		t.Fatalf("after a server was killed: %v", err)
	}
	_ = second.Close()
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("in place of a file: got %v, want EADDRINUSE", err)
	}
	if text, err := os.ReadFile(path); string(text) != "data" {
		t.Errorf("the file has %q, %v", text, err)
	}
	for _, bad := range []string{"unix:", "unix:/" + strings.Repeat("x", 107)} {
		if _, err := connections.Listen(bad, 0, false, connections.UnixSocket{}); err == nil || !strings.Contains(err.Error(), "want 1 to 107 bytes") {
			t.Errorf("%.20s: got %v", bad, err)
		}
	}
}
