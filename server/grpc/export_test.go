package grpc

import (
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server/grpc/replies"
)

// The following names are exported for the tests in package grpc_test.

const (
	BlockedCost = blockedCost
	CallCost    = callCost
	ConnCost    = connCost
	HeaderCost  = headerCost
	SentCost    = sentCost
	SentLeast   = sentLeast

	ConnectionWindow = connectionWindow
	StreamWindow     = streamWindow
	PrefaceBytes     = prefaceBytes
	MostRefused      = mostRefused

	MaxText        = maxText
	MaxEncodedText = maxEncodedText
	MaxCutMark     = maxCutMark
	ErrorKey       = errorKey
)

var (
	ErrStopping = errStopping
	ShortText   = shortText
)

// Active returns the number of handlers and goroutines of streams.
func (g *FrontEnd) Active() int { return g.active.Count() }

// Unread returns the number of streams with a queue of replies.
func (g *FrontEnd) Unread() int { return g.waiting.Count() }

// CountUnread charges unread replies to another account.
func (g *FrontEnd) CountUnread(account *budget.Account) { g.waiting = replies.NewStreams(account) }

// Stopping is closed when RPCs are rejected.
func (g *FrontEnd) Stopping() <-chan struct{} { return g.stopping }

// Connection is an open connection.
type Connection struct{ *connection }

// Connections returns the open connections.
func (g *FrontEnd) Connections() (list []Connection) {
	g.socket.mu.Lock()
	defer g.socket.mu.Unlock()
	for c := range g.socket.open {
		list = append(list, Connection{c})
	}
	return list
}

func (c Connection) CloseIdle() bool    { return c.closeIdle() }
func (c Connection) Flushed()           { c.flushed() }
func (c Connection) Left(n int64)       { c.left(n) }
func (c Connection) Received() int64    { return c.received.Load() }
func (c Connection) Take(n int64) error { return c.take(n) }
func (c Connection) Waiting() bool      { return c.waiting.Load() }
