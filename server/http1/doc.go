// Package http1 serves HTTP/1.0 and 1.1: connections, the heads and bodies of requests, content
// codings and replies. It does not know their purpose.
//
//	Server.Run ── accepts, counts, rejects, ends
//	   └─ conn: readHead ── Request.parse ── Handler.Serve ── rest of the body ─────────┐
//	        ▲                                  └─ Reply.Send, or Begin, Continue, End   │
//	        └───────────────────────────────────────────────────────────────────────────┘
//
// It is not net/http, so that bodies go from the socket into the handler's memory and replies from
// their parts to the socket without a copy, and so that paths and headers keep their spelling.
//
// A Reply writes all heads but two: the 503 of a connection beyond the limit (Server.refuseConn)
// and 100 Continue (io.go). A reply in pieces is chunked. Continue returns when the socket has
// taken its piece, so a slow reader blocks the handler, for the write timeout at most. A reply that
// a panic cuts off has no last chunk.
//
// States: a conn waits for input, reads the head of a request, serves it, or is closing. An
// eviction or the end of the server closes a waiting conn without unread input. A conn that reads
// or serves ends by itself, with its next reply or wait, once the server is closing.
//
// Goroutines: one for each connection. It owns everything of its conn but the state, and calls the
// Handler, which may use its Request and Reply only there and until it returns. While a request is
// watched (Request.Watch) for longer than a few milliseconds, another goroutine peeks at the socket
// and cancels the request's context if the client has disconnected. Through TLS it reads one byte,
// which the connection takes over when the watch has been stopped.
//
// Locks: Server.mu guards the set of open connections, watchers.mu the list of watched requests,
// disconnectWatcher.mu a look at the socket. No lock is acquired under any of them. The locks of
// package connections may be held when an idle connection is closed, which acquires none.
//
// Memory: the texts of a Request are parts of one string and may be kept. A Reply keeps no part of
// its body. A conn borrows its buffers with the first byte of a request and returns them after
// the reply (buffers.go), so that idle connections have none. Only with TLS it keeps its input
// buffer. The memory for a small request is charged when the connection is accepted, the rest of a
// large head when the head is complete. Handlers charge for the bodies of replies (Reply.Charge)
// until they have been sent. Each connection is a budget.Holder, which the charges of its requests
// name.
//
// Trust: a client may send anything, at any speed. A head that two readers could understand
// differently is rejected and ends the connection. Every wait for a client has a deadline that
// moves only while the client makes progress.
package http1
