package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"
)

// lookLimit limits each look at an unknown endpoint.
const lookLimit = 2 * time.Second

// WantHTTP tells which address to give.
const WantHTTP = "give the address of the HTTP endpoint; its port is 8000 unless the server has another --http-port"

// Instead explains why a request to an HTTP endpoint, or to a gRPC one, has failed: it names the
// endpoint that is at the address, and the address to use. It returns "" if it finds nothing.
func (a *Address) Instead(ctx context.Context, grpc bool) string {
	want := ": " + WantHTTP
	if grpc {
		want = ": give the address of the gRPC endpoint; its port is 8001 unless the server has another --grpc-port"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*lookLimit)
	defer cancel()
	if !grpc && a.isHTTP2(ctx) {
		return "a gRPC endpoint" + want
	}
	e := NewEndpoint(a, lookLimit)
	defer e.Close()
	var page []byte
	err := e.Read(ctx, http.MethodGet, "/metrics", nil, func(reply io.Reader) (err error) {
		page, err = io.ReadAll(io.LimitReader(reply, 4096))
		return err
	})
	var plain tls.RecordHeaderError
	switch {
	case bytes.Contains(page, []byte("# TYPE ")), bytes.Contains(page, []byte("# HELP ")):
		return "a metrics endpoint" + want
	case grpc && (err == nil || IsRefusal(err)):
		return "an HTTP endpoint" + want
	case a.Scheme == secure && (errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch)):
		return "an endpoint without TLS: leave out https://"
	}
	return ""
}

// isHTTP2 reports whether an endpoint speaks HTTP/2 from the first byte, as a gRPC endpoint does.
func (a *Address) isHTTP2(ctx context.Context) bool {
	connection, err := a.Dial(ctx)
	if err != nil {
		return false
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = connection.SetDeadline(deadline) // a closed connection fails below
	}
	// Each side begins with a SETTINGS frame, the client after its preface: 3 bytes of length, type
	// 4, flags, stream 0.
	if _, err := io.WriteString(connection, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return false
	}
	var head [9]byte
	_, err = io.ReadFull(connection, head[:])
	return err == nil && head[3] == 4 && [5]byte(head[4:]) == [5]byte{}
}
