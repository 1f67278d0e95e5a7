// Package http1 serves HTTP/1.0 and 1.1: connections, the heads and bodies of requests,
// content codings and replies. It knows nothing of what the requests are for.
//
//	Server.Run ── accepts, counts, refuses, ends
//	   └─ conn: readHead ── Request.parse ── Handler.Serve ── what is left of the body ─┐
//	        ▲                                  └─ Reply.Send, or Begin, Continue, End   │
//	        └─────────────────────────────────────────────────────────────────────────┘
//
// Two heads are not written by a Reply: the 503 of a connection too many
// (Server.refuseConn) and 100 Continue (io.go).
//
// A reply of which only the pieces are known, one after another, is chunked. Continue
// returns when the socket has taken its piece, so a client that reads slowly holds the
// handler up, for the write timeout at most; a reply that a panic cuts off has no last
// chunk.
//
// It is not net/http, so that a body goes from the socket to where the handler wants its
// bytes and a reply from where its parts lie to the socket, without a copy; and so that
// paths and headers stay as they were spelled.
//
// States: a conn waits for the whole head of a request, serves one, or is closing. Code that wants a waiting
// connection gone (an eviction, the end of the server) closes it by one compare-and-swap;
// a conn that serves ends by itself, with its next reply, once the server is closing.
//
// Goroutines: one for each connection. Everything of a conn but its state belongs to it,
// and so do the Request and the Reply that a handler is given, until the handler returns.
// While a request is watched (Request.Watch), a timer looks at the socket without reading
// from it and ends the request's context if the client has left. Through TLS it reads one
// byte, which the connection takes over when the watch has been stopped.
//
// Callers: a front end makes a Server and runs it once, in a goroutine of its own. A
// Handler is called by the goroutine of its connection and may use its Request and Reply there
// alone.
//
// Locks: Server.mu guards the set of open connections and disconnectWatcher.mu a look at the
// socket; neither is held while another lock is taken. The locks of package
// connections may be held when an idle connection is closed, which takes none.
//
// Memory: the texts of a Request are parts of one string and may be kept. A Reply keeps no
// part of what it sends. The buffers of a conn are lent to it with the first byte of a request and
// given back behind the reply (buffers.go), so that a connection that waits has none; only through TLS
// it keeps those for its input. The memory for a small request is charged when the connection is let in,
// and the rest of a large head when the head is whole. A handler charges for the bodies of replies (Reply.Charge),
// until they have been sent. Each connection is a budget.Holder, which the charges of its
// requests name.
//
// Trust: a client may send anything, at any speed. A head that two readers could
// understand differently is refused and ends the connection; every wait for a client has
// a deadline that moves on only while the client does.
package http1
