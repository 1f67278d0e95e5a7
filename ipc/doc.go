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
// Locks: Channel.recv before Channel.send. Receive calls its handler with recv
// held, which keeps frames in order; the handler may send.
package ipc
