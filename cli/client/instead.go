package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// lookLimit limits each look at an unknown endpoint.
const lookLimit = 2 * time.Second

// Want tells which address to give instead of a.
func (a *Address) Want(grpc bool) string {
	name, flag, port := "HTTP", "http", 8000
	if grpc {
		name, flag, port = "gRPC", "grpc", 8001
	}
	if a.Scheme == socket {
		return fmt.Sprintf("give the socket of the %s endpoint, which the server's --%s-address names", name, flag)
	}
	return fmt.Sprintf("give the address of the %s endpoint; its port is %d unless the server has another --%s-port", name, port, flag)
}

// Instead explains why a request to an HTTP endpoint, or to a gRPC one, has failed: it names the
// endpoint that is at the address, and the address to use. It returns "" if it finds nothing.
func (a *Address) Instead(ctx context.Context, grpc bool) string {
	want := ": " + a.Want(grpc)
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
