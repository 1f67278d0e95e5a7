package bench_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// TestServersThatAreNone checks the error for an address without a server, for each protocol.
func TestServersThatAreNone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	for _, protocol := range []string{"http", "grpc", "stream"} {
		if _, status, stderr := run(t, "--url", address, "--protocol", protocol, "--timeout=5s"); status != 1 || !strings.Contains(stderr, "no server answers at "+address+" over "+protocol) {
			t.Errorf("%s: exit status %d: %s", protocol, status, stderr)
		}
	}
}

// TestPortsOfAnotherProtocol checks the errors for an endpoint that speaks the other protocol.
func TestPortsOfAnotherProtocol(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := grpc.NewServer()
	testkit.Serve(t, listener, calls)
	for _, c := range []struct{ url, protocol, want string }{
		{listener.Addr().String(), "http", "it is a gRPC endpoint: give the address of the HTTP endpoint; its port is 8000 unless the server has another --http-port, or use --protocol grpc"},
		{web.URL, "grpc", "it is an HTTP endpoint: give the address of the gRPC endpoint; its port is 8001 unless the server has another --grpc-port, or use --protocol http"},
		{strings.Replace(web.URL, "http:", "https:", 1), "http", "it is an endpoint without TLS: leave out https://"},
		{strings.Replace(web.URL, "http:", "https:", 1), "grpc", "it is an endpoint without TLS: leave out https://"},
	} {
		if _, status, stderr := run(t, "--url", c.url, "--protocol", c.protocol, "--timeout=5s"); status != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s over %s: exit status %d: %s, want %q", c.url, c.protocol, status, stderr, c.want)
		}
	}
}

// TestMetricsPort checks the error for the metrics endpoint, which replies to any path.
func TestMetricsPort(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.URL.Path == "/metrics":
			_, _ = io.WriteString(w, "# HELP nv_inference_count Number of inferences\n")
		}
	}))
	defer metrics.Close()
	for protocol, want := range map[string]string{
		"http": "it is a metrics endpoint: give the address of the HTTP endpoint; its port is 8000 unless the server has another --http-port",
		"grpc": "it is a metrics endpoint: give the address of the gRPC endpoint; its port is 8001 unless the server has another --grpc-port",
	} {
		if _, status, stderr := run(t, "--url", metrics.URL, "--protocol", protocol, "--timeout=5s"); status != 1 || !strings.HasSuffix(stderr, want+"\n") {
			t.Errorf("%s: exit status %d: %s, want %q", protocol, status, stderr, want)
		}
	}
}

// TestUnixSockets sends requests over Unix sockets, for each protocol.
func TestUnixSockets(t *testing.T) {
	socket := func(name string) (net.Listener, string) {
		path := filepath.Join(t.TempDir(), name)
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return listener, "unix:" + path
	}
	listener, web := socket("http")
	over := httptest.NewUnstartedServer(fakeHandler(`{"name":"m"}`, func(http.ResponseWriter, *http.Request) {}))
	over.Listener.Close()
	over.Listener = listener
	over.Start()
	defer over.Close()
	listener, remote := socket("grpc")
	calls := grpc.NewServer()
	grpcservice.RegisterGRPCInferenceServiceServer(calls, largeReplies{})
	testkit.Serve(t, listener, calls)
	for protocol, url := range map[string]string{"http": web, "grpc": remote} {
		r, status, stderr := run(t, "--url", url, "--protocol", protocol)
		if status != 0 || len(r.Levels) != 1 || r.Levels[0].Requests == 0 || r.URL != url {
			t.Errorf("%s: exit status %d: %s, got %+v", protocol, status, stderr, r)
		}
	}
}
