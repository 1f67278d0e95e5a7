package http1

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/panics"
)

const (
	// lobbySize bounds the rejected connections that are still open. Their descriptors are among
	// those that the budget of connections spares.
	lobbySize = 32
	// lobbyTime is how long each may stay.
	lobbyTime = 250 * time.Millisecond
	// lobbyBytes bounds how much of a request is read after the reply.
	lobbyBytes = 4 << 20
)

// lobby holds connections that are rejected or evicted because there are too many. Some clients,
// such as Go's, treat a reply that arrives before they have sent their request as a broken
// connection. A socket that is closed with unread bytes loses the reply. So a connection gets the
// reply when its client has sent something, and is closed when the client has read it. A flood does
// not keep others out: the oldest connection makes room. An evicted connection gets the reply only
// if its client sends a request, as the client could take it for the answer to a later one.
type lobby struct {
	slots chan struct{} // a value for each connection, until it is closed

	mu    sync.Mutex
	stays []net.Conn // in order of arrival; at most lobbySize
}

func newLobby() *lobby { return &lobby{slots: make(chan struct{}, lobbySize+lobbySize/2)} }

// enter reports whether there is room for c, whose reads then have a deadline. The caller calls
// leave later.
func (l *lobby) enter(c net.Conn) bool {
	select {
	case l.slots <- struct{}{}:
	default:
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(lobbyTime))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.stays) == lobbySize {
		_ = l.stays[0].SetReadDeadline(time.Now())
		l.stays = slices.Delete(l.stays, 0, 1)
	}
	l.stays = append(l.stays, c) // bound: lobbySize
	return true
}

func (l *lobby) leave(c net.Conn) {
	l.mu.Lock()
	if i := slices.Index(l.stays, c); i >= 0 {
		l.stays = slices.Delete(l.stays, i, i+1)
	}
	l.mu.Unlock()
	<-l.slots
}

// wait waits until all have left. Nothing enters any more.
func (l *lobby) wait() {
	for range cap(l.slots) {
		l.slots <- struct{}{}
	}
}

// refuseConn rejects a connection. It does not wait: the socket's buffer is empty. Through TLS a
// reply would have to wait.
func (s *Server) refuseConn(c net.Conn) {
	switch {
	case s.cfg.TLS != nil:
		_ = c.Close()
	case s.refused.enter(c):
		panics.Go(s.log, panics.Connection, func() { s.refuseRequest(c, true) }, nil)
	default:
		s.replyFull(c)
		_ = c.Close()
	}
}

// refuseRequest rejects a connection in the lobby when its client has sent something, or the lobby
// needs its place. A client that has sent nothing gets the reply only if silent is true.
func (s *Server) refuseRequest(c net.Conn, silent bool) {
	defer s.refused.leave(c)
	defer c.Close()
	var first [1]byte
	if n, _ := c.Read(first[:]); n == 0 && !silent {
		return
	}
	s.replyFull(c)
	if endOutput(c) {
		_, _ = io.CopyN(io.Discard, c, lobbyBytes)
	}
}

func (s *Server) replyFull(c net.Conn) {
	body := s.errorBody("server has as many connections as it allows")
	_ = c.SetWriteDeadline(time.Now().Add(lobbyTime))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}
