package notify_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nereid-serving/nereid/cli/notify"
)

func TestProbeAsksTheFirstEndpoint(t *testing.T) {
	asked := make(chan string, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.NotFound(w, r)
	}))
	core := errors.New("the core")
	probe := notify.Probe([]net.Addr{nil, endpoint.Listener.Addr()}, func() error { return core })
	if err := probe(t.Context()); err != nil {
		t.Errorf("got error %v, want the answer, though it is 404", err)
	}
	if path := <-asked; path != "/v2/health/live" {
		t.Errorf("got %s", path)
	}
	endpoint.Close()
	if err := probe(t.Context()); err == nil {
		t.Error("a server that is gone has answered")
	}
	if err := notify.Probe([]net.Addr{nil}, func() error { return core })(t.Context()); !errors.Is(err, core) {
		t.Errorf("without an endpoint: got %v, want that of the core", err)
	}
	held, stop := context.WithCancel(t.Context())
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	stop()
	if err := notify.Probe([]net.Addr{hangs.Addr()}, nil)(held); !errors.Is(err, context.Canceled) {
		t.Errorf("a server that hangs: got %v, want the end of the context", err)
	}
}
