package notify

import (
	"context"
	"io"
	"net"
	"net/http"
)

// Probe returns a function that sends the server a request of its own and succeeds when it is answered, whatever the
// answer says: it has been through the listener, a connection and a handler. The first of endpoints that is not nil is
// asked, an HTTP endpoint without TLS; where there is none, core is.
func Probe(endpoints []net.Addr, core func() error) func(context.Context) error {
	for _, endpoint := range endpoints {
		if endpoint == nil {
			continue
		}
		url := "http://" + endpoint.String() + "/v2/health/live"
		// A connection for each request: the server would wait for one that is kept when it ends.
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		return func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			reply, err := client.Do(r)
			if err != nil {
				return err
			}
			defer reply.Body.Close()
			_, err = io.Copy(io.Discard, reply.Body)
			return err
		}
	}
	return func(context.Context) error { return core() }
}
