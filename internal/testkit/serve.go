package testkit

import (
	"net"
	"testing"
)

// Serve runs a server, such as a *grpc.Server, on a listener until the test ends.
func Serve(t *testing.T, listener net.Listener, server interface {
	Serve(listener net.Listener) error
	Stop()
}) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
