// Package ipc is the connection between the supervisor and a stub: frames in two rings, each
// written by one side only, and bells for the side that sleeps. docs/protocol.md specifies the
// protocol to the byte.
//
//	       down ring                 up ring
//	Begin ─▶ [frame][frame] ─▶ stub ─▶ [frame][frame] ─▶ Receive
//	Commit ─▶ bell                      bell ─▶ Run
//
// A Channel belongs to one life of a stub. All data that it reads is copied out of the ring once,
// checked, and then used. A violation of the protocol is a ProtocolError, after which the channel
// must be closed.
//
// A Channel is open from New to Close. It may reach its end before Close: when the stub has closed
// its bell, nothing more can be sent, but the frames that have arrived are still received.
//
// Lock order: Channel.spin, Channel.recv, Channel.send; wake and the arena's lock are leaves.
// Receive calls its handler with recv held, which keeps frames in order; the handler may send. Fill
// calls its function with send held; that function only writes the frame.
//
// Any goroutine may send. One goroutine calls Run; others may read instead of it for a while by
// Spin, or by Watch, Look and Unwatch. Any goroutine except a handler may call Close, which waits
// for recv.
//
// Barriers: a word that must be visible before another is loaded is swapped, not stored. A store of
// sync/atomic is as strong by Go's memory model. But with -race it is only a release store outside
// Go's heap, and two sides may miss each other.
//
// Memory: only this process writes the down file, and only the stub the up file. A Frame's body is
// a copy on the heap and belongs to the handler. Arena lends ranges of the arena until they are
// released; their file stays mapped that long, even after Close.
package ipc
