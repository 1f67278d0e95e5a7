package health

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthIsThatOfTheEndpoint(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/health/live" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel alone
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	none := closed.Addr().String()
	closed.Close()
	address := server.Listener.Addr().String()
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{address}, 0, "/v2/health/live: yes"},
		{[]string{"http://" + address + "/"}, 0, "/v2/health/live: yes"},
		{[]string{address, "--ready"}, 1, "/v2/health/ready: status 400, want 200"},
		{[]string{none}, 1, "the server listens when its models are loaded"},
		{[]string{silent.Addr().String(), "--timeout=10ms"}, 1, "no answer within 10ms"},
		{[]string{"localhost"}, 2, `the address is "localhost", want host:port`},
		{[]string{address, "x"}, 2, `got "x" besides the address`},
		{[]string{"--help"}, 0, "Usage: nereid health [--ready] [ADDRESS]"},
	} {
		var out, errs strings.Builder
		if status := Run(test.args, &out, &errs); status != test.status || !strings.Contains(out.String()+errs.String(), test.want) {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", test.args, status, out.String(), errs.String(), test.status, test.want)
		}
	}
}

// TestLocalhostIsBothLoopbacks: the name is looked up nowhere, and a server may listen on either address.
func TestLocalhostIsBothLoopbacks(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("no listener at %s: %v", address, err)
			continue
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Listener.Close()
		server.Listener = l
		server.Start()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		var out, errs strings.Builder
		if status := Run([]string{"localhost:" + port}, &out, &errs); status != 0 {
			t.Errorf("%s: status %d, %s", address, status, errs.String())
		}
		server.Close()
	}
}
