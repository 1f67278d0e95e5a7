package connections_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
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

// TestAddressesAreChecked checks which addresses are unusable before anything listens on them.
func TestAddressesAreChecked(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := connections.Listen("unix:"+dir+"/socket", 0, false, connections.UnixSocket{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	tcp, err := connections.Listen("127.0.0.1", 0, false, connections.UnixSocket{})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	user := strconv.Itoa(os.Geteuid())
	for _, c := range []struct {
		address string
		port    int
		want    string // "": usable
	}{
		{"unix:" + dir + "/new", 0, ""},
		{"unix:" + dir + "/socket", 0, ""},
		{"127.0.0.1", tcp.Addr().(*net.TCPAddr).Port, ""},
		{"127.0.0.1", 0, ""},
		{"unix:" + dir + "/file", 0, dir + "/file exists and is not a Unix socket"},
		{"unix:" + dir, 0, dir + " exists and is not a Unix socket"},
		{"unix:" + dir + "/none/new", 0, "user " + user + " creates a Unix socket in " + dir + "/none: no such file or directory"},
		{"unix:" + dir + "/file/new", 0, "user " + user + " creates a Unix socket in " + dir + "/file: not a directory"},
		{"192.0.2.1", 0, "listen tcp 192.0.2.1:0: bind: cannot assign requested address"},
	} {
		got := ""
		if err := connections.Check(c.address, c.port); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:%d: got %q, want %q", c.address, c.port, got, c.want)
		}
	}
	if _, err := os.Stat(dir + "/new"); !os.IsNotExist(err) {
		t.Errorf("after Check: got %v, want no socket", err)
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
	if _, err := listen(); err == nil || err.Error() != path+" exists and is not a Unix socket" {
		t.Errorf("in place of a file: got %v", err)
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
