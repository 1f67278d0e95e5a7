package rest

import (
	"context"
	"net"

	"github.com/nereid-serving/nereid/metrics"
)

// Names for the tests in package rest_test.

const (
	BlocksLabel   = blocksLabel
	WantInstances = wantInstances
)

var ReadInstances = readInstances

func (f *FrontEnd) ServeConn(ctx context.Context, conn net.Conn) { f.conns.ServeConn(ctx, conn) }

func (f *FrontEnd) CloseSocket() error { return f.socket.Close() }

// EndpointOf returns the number of a path's endpoint, or 0.
func EndpointOf(path string) int { return int(route(path).endpoint) }

// Methods returns the method of each endpoint; "" means GET and POST.
func Methods() map[int]string {
	methods := map[int]string{}
	for e, row := range endpoints {
		if endpoint(e) != epNone {
			methods[e] = row.method
		}
	}
	return methods
}

// LoadReport returns the load in a format, or the kind of block that is missing.
func LoadReport(samples []metrics.Sample, format string) (text, missing string) {
	load, missing := readBlocks(samples)
	return load.encode(format), missing
}
