package health_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/cli/health"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestHealthIsThatOfTheEndpoint(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/health/live" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // only the kernel accepts connections
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
	remote := grpc.NewServer()
	grpcPort, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Serve(t, grpcPort, remote)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprint(w, "# HELP nv_inference_count Number of inferences\n")
		}
	}))
	defer metrics.Close()
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{address}, 0, "/v2/health/live: yes"},
		{[]string{"http://" + address + "/"}, 0, "/v2/health/live: yes"},
		{[]string{"--url", address}, 0, "/v2/health/live: yes"},
		{[]string{metrics.Listener.Addr().String()}, 1, " is a metrics endpoint: give the address of the HTTP endpoint; its port is 8000 unless "},
		{[]string{address, "--ready"}, 1, "/v2/health/ready: status 400, want 200"},
		{[]string{grpcPort.Addr().String()}, 1, grpcPort.Addr().String() + " is a gRPC endpoint: give the address of the HTTP endpoint; its port is 8000 unless "},
		{[]string{other.Listener.Addr().String()}, 1, "/v2/health/live: status 404, want 200; give the address of the HTTP endpoint"},
		{[]string{none}, 1, "a server listens once its models are loaded"},
		{[]string{silent.Addr().String(), "--timeout=10ms"}, 1, "no answer within 10ms"},
		{[]string{"localhost"}, 2, `the address is "localhost", want host:port`},
		{[]string{address, "x"}, 2, `unexpected argument "x" after the address`},
		{[]string{"--help"}, 0, "Usage: nereid health [--ready] [ADDRESS]"},
	} {
		var out, errs strings.Builder
		if status := health.Run(test.args, &out, &errs); status != test.status || !strings.Contains(out.String()+errs.String(), test.want) {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", test.args, status, out.String(), errs.String(), test.status, test.want)
		}
	}
}

// TestReadyServersNameModelsThatAreNotLoaded checks that the models without a version are named
// although the server is ready. A model whose config.pbtxt is invalid is one of them.
func TestReadyServersNameModelsThatAreNotLoaded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /v2/repository/index":
			fmt.Fprint(w, `[{"name":"bad"},{"name":"good","version":"1","state":"READY"}]`)
		case "GET /v2":
			fmt.Fprint(w, `{"name":"fake"}`)
		}
	}))
	defer server.Close()
	for flag, want := range map[string]string{"--ready=true": "/v2/health/ready: yes; not loaded: bad\n", "--ready=false": "/v2/health/live: yes\n"} {
		var out, errs strings.Builder
		if status := health.Run([]string{server.URL, flag}, &out, &errs); status != 0 || !strings.HasSuffix(out.String(), want) {
			t.Errorf("%s: got status %d, %q and %q, want 0 and %q", flag, status, out.String(), errs.String(), want)
		}
	}
}

// TestLocalhostIsBothLoopbacks checks that localhost finds a server on either loopback address
// without name resolution.
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
		if status := health.Run([]string{"localhost:" + port}, &out, &errs); status != 0 {
			t.Errorf("%s: status %d, %s", address, status, errs.String())
		}
		server.Close()
	}
}

// TestModelsThatAreNotReadyAreNamed checks that models are named if they failed, are loading, or
// have lost their instances, but not if they were unloaded. Models without a version are named
// separately.
func TestModelsThatAreNotReadyAreNamed(t *testing.T) {
	index := `[{"name":"good","version":"1","state":"READY"},{"name":"lost","version":"2","state":"READY"},{"name":"idle"},
		{"name":"gone","version":"1","state":"UNAVAILABLE","reason":"unloaded"},
		{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"Internal: ValueError: no\n\nAt:\n  model.py(1)"},{"name":"slow","version":"1","state":"LOADING"}`
	many := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /v2/repository/index":
			fmt.Fprint(w, index+many+"]")
		case "GET /v2/models/good/versions/1/ready":
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	says := func(args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		if status := health.Run(append(args, server.Listener.Addr().String()), &out, &errs); status != 1 {
			t.Errorf("got status %d and %q, want 1", status, out.String())
		}
		return errs.String()
	}
	named := "status 400, want 200; not ready: lost 2 (its instances are not), bad 1 (UNAVAILABLE: Internal: ValueError: no), slow 1 (LOADING); not loaded: idle"
	if got := says("--ready"); !strings.HasSuffix(got, named+"\n") {
		t.Errorf("got %q, want %q", got, named)
	}
	if got := says(); !strings.HasSuffix(got, "/v2/health/live: status 400, want 200\n") {
		t.Errorf("got %q, want no models: they do not keep a server from living", got)
	}
	for i := range 20 {
		many += fmt.Sprintf(`,{"name":"m%d","version":"1","state":"LOADING"}`, i)
	}
	if got := says("--ready"); !strings.HasSuffix(got, "m6 1 (LOADING), 13 more; not loaded: idle\n") {
		t.Errorf("got %q, want ten names and the number of others", got)
	}
	index = "nonsense"
	if got := says("--ready"); !strings.HasSuffix(got, "status 400, want 200\n") {
		t.Errorf("got %q, want no models", got)
	}
}
