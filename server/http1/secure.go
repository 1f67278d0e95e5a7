package http1

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// secureCost is what TLS takes for a connection: its state, a record that is being
	// read, and another that is being put together.
	secureCost = 56 << 10
	// recordBytes is the most that a record of TLS carries (RFC 8446, 5.1).
	recordBytes = 16 << 10
)

// secureConn is a connection through TLS.
type secureConn struct {
	*tls.Conn
	records *bufio.Writer // nil until parts are joined
}

func newSecureConn(socket net.Conn, config *tls.Config) *secureConn {
	return &secureConn{Conn: tls.Server(socket, config)}
}

// begin shakes hands, for which the client has the given time.
func (s *secureConn) begin(within time.Duration) error {
	if err := s.SetDeadline(time.Now().Add(within)); err != nil {
		return fmt.Errorf("begin TLS: %w", err)
	}
	if err := s.Handshake(); err != nil {
		return fmt.Errorf("begin TLS: %w", err)
	}
	return s.SetDeadline(time.Time{})
}

// errPlain is replied, without TLS, to a client that speaks HTTP where TLS is served.
var errPlain = &headError{http.StatusBadRequest, "this port serves HTTPS, and the request came without TLS"}

// isPlain reports whether a client that does not shake hands has begun a request of HTTP
// instead: by its method, of which a record's head has five bytes.
func isPlain(err error) bool {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil {
		return false
	}
	switch string(record.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH":
		return true
	}
	return false
}

// writeParts sends the parts in full records: one Write for each would make at least one
// record, and one call of the kernel, of each.
func (s *secureConn) writeParts(parts [][]byte) error {
	if s.records == nil {
		s.records = bufio.NewWriterSize(s.Conn, recordBytes) // bound: recordBytes
	}
	for _, part := range parts {
		if _, err := s.records.Write(part); err != nil {
			return err
		}
	}
	return s.records.Flush()
}
