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
	// secureCost is the memory of a TLS connection: its state, a received record that is incomplete,
	// and a record under construction.
	secureCost = 56 << 10
	// recordBytes is the most that a TLS record carries (RFC 8446, 5.1).
	recordBytes = 16 << 10
)

// secureConn is a TLS connection.
type secureConn struct {
	*tls.Conn
	records *bufio.Writer // nil until parts are joined
}

func newSecureConn(socket net.Conn, config *tls.Config) *secureConn {
	return &secureConn{Conn: tls.Server(socket, config)}
}

// begin does the handshake within the given time.
func (s *secureConn) begin(within time.Duration) error {
	if err := s.SetDeadline(time.Now().Add(within)); err != nil {
		return fmt.Errorf("begin TLS: %w", err)
	}
	if err := s.Handshake(); err != nil {
		return fmt.Errorf("begin TLS: %w", err)
	}
	return s.SetDeadline(time.Time{})
}

// errPlain is the reply, without TLS, to a client that speaks HTTP to a TLS port.
var errPlain = &headError{http.StatusBadRequest, "this port serves HTTPS, and the request came without TLS"}

// isPlain reports whether a client has begun an HTTP request instead of a handshake: the five bytes
// of a record's header show the method.
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

// writeParts sends the parts in full records. One Write for each part would make at least one
// record and one system call of each.
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
