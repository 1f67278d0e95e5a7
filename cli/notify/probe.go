package notify

import (
	"context"
	"io"
	"net"
	"net/http"
)

// Probe returns a function that sends a request to the server and succeeds if any response arrives,
// because a response has passed the listener, a connection and a handler. It uses the first non-nil
// endpoint, which speaks HTTP without TLS, or else core.
func Probe(endpoints []net.Addr, core func() error) func(context.Context) error {
	for _, endpoint := range endpoints {
		if endpoint == nil {
			continue
		}
		url := "http://localhost/v2/health/live"
		// One connection per request: shutdown would wait for a kept one.
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, endpoint.Network(), endpoint.String())
		}}}
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
