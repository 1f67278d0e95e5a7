// Package ipc is what the supervisor and a stub say to each other: frames in
// two rings, each written by one side only, and bells for the side that sleeps.
// docs/protocol.md is the protocol to the byte.
//
//	       down ring                 up ring
//	Begin ─▶ [frame][frame] ─▶ stub ─▶ [frame][frame] ─▶ Receive
//	Commit ─▶ bell                      bell ─▶ Run
//
// A Channel belongs to one life of a stub. Everything that it reads is copied
// out of the ring once, checked, and then used; what breaks the protocol is a
// ProtocolError, after which the channel must be given up.
//
// States: a Channel is open from New to Close. Before Close it may be at its end already:
// when the stub has closed its bell, nothing can be sent, and what had come is received.
//
// Locks: Channel.spin before Channel.recv before Channel.send; wake and the arena's lock
// are leaves. Receive calls its handler with recv held, which keeps frames in order; the
// handler may send. Fill calls its function with send held: it only writes the frame.
//
// Callers: any goroutine sends. One goroutine calls Run; others may take its place for a
// while by Spin, or by Watch, Look and Unwatch. Close may be called by any goroutine but a
// handler, since it waits for recv.
//
// Memory: the down file is written by this process alone, the up file by the stub. A
// Frame's body is a copy on the heap and belongs to the handler. Ranges of the arena are
// lent by Arena until they are released; their file stays mapped for so long, also after
// Close.
package ipc
