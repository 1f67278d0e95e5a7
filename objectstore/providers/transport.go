package providers

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/nereid-serving/nereid/objectstore"
)

const (
	dialTime  = 10 * time.Second
	stallTime = 30 * time.Second // without a byte in either direction
	idleTime  = 20 * time.Second // less than stallTime, which ends idle connections as well
	mostReply = 16 << 20         // bytes of a reply that is no object's body: 1000 keys have 1 MiB of names, and with Azure 8 MiB of metadata
	// S3 has stricter bounds, because a model may name any server. A page has 1,000 keys, each up to
	// three times as long when encoded, with about 400 bytes and 30 tags. Small tags take many times
	// their length.
	mostS3Reply = 6 << 20
	mostS3Marks = 100_000 // tags and attributes
)

// newTransport makes the connections of one client. Bodies arrive as they are stored.
func (k connector) newTransport() *http.Transport {
	dialer := net.Dialer{Timeout: dialTime}
	return &http.Transport{
		Proxy: pastMachine(http.ProxyFromEnvironment),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &movingConn{Conn: conn, stall: k.stall}, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTime,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        min(idleTime, k.stall),
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true,
	}
}

// pastMachine bypasses the proxy for the services of the machine itself, which report its identity:
// a proxy would answer with its own. They have link-local addresses, or Amazon's below fd00:ec2::.
func pastMachine(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	amazons := netip.MustParsePrefix("fd00:ec2::/32")
	return func(r *http.Request) (*url.URL, error) {
		host := r.URL.Hostname()
		if at, err := netip.ParseAddr(host); host == "metadata.google.internal" || err == nil && (at.IsLinkLocalUnicast() || amazons.Contains(at)) {
			return nil, nil
		}
		return proxy(r)
	}
}

// movingConn is a connection that fails when no byte has moved on it for stall. A write also
// postpones the deadline of a waiting read: the reply starts then.
type movingConn struct {
	net.Conn
	stall time.Duration
}

func (c *movingConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *movingConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// newClient makes an HTTP client with the usual bounds.
func (k connector) newClient(transport *http.Transport) *http.Client {
	return bounded{transport, k.reply, math.MaxInt64}.client()
}

// bounded bounds every body that is not an object's.
type bounded struct {
	*http.Transport
	most  int64 // bytes
	marks int64 // '<' and '=', which begin tags and values of attributes
}

// client makes an HTTP client that follows no redirect, which could send credentials elsewhere.
func (b bounded) client() *http.Client {
	return &http.Client{
		Transport:     b,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// streamed marks the context of requests for objects.
type streamed struct{}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if r.Context().Value(streamed{}) == nil || response.StatusCode >= 300 {
		response.Body = &boundedBody{response.Body, b.most, b.marks, b}
	}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	rest, marks int64
	bounds      bounded
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.rest <= 0 {
		return 0, objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "LongReply", Message: fmt.Sprintf("the store's reply has more than %d bytes", b.bounds.most)}
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.rest)])
	b.rest -= int64(n)
	for _, mark := range []byte("<=") {
		b.marks -= int64(bytes.Count(p[:n], []byte{mark}))
	}
	if b.marks < 0 {
		return 0, objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "LongReply", Message: fmt.Sprintf("the store's reply has more than %d tags and attributes", b.bounds.marks)}
	}
	return n, err
}
