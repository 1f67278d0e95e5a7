// Package peer is the stub's side of docs/protocol.md in Go: the process of a backend's instance speaks to its
// supervisor through it, and tests of the supervisor may.
//
//	         down ring                    up ring
//	Receive ◀─ [frame][frame] ◀─ server ◀─ [frame][frame] ◀─ Fill
//	   └ Route ─▶ Box ─▶ Receive of another goroutine
//
//	Loan    a block of *requests* that the server has lent: its bytes in a private mapping
//	Block   a block of this process's arena in *up*: outputs are written there and lent to the server
//
// There is no goroutine for reading. A goroutine that waits for a frame reads the ring for all, puts the frames of
// others into their boxes, and leaves the reading to another one when its own frame has come: a frame that arrives
// while its receiver spins is taken without waking a thread.
//
// States: a Peer is open from Attach until the server has gone or has broken the protocol; then each call returns that
// error. A block of the arena is in use, free, or hollow: free, and its memory given back.
//
// Locks: reading (which goroutine reads), sending (which one writes the up ring); waiting, tickets, Box.mu, Loans.mu and
// Arena.mu are leaves. Route is called with reading held and must not wait for a frame. Functions that Fill
// calls write the frame and do nothing else.
//
// Callers: any goroutine, for all of it.
//
// Memory: a frame's body is a copy on the heap. Bytes of a Loan or a Block are valid until its last Release. What
// is written into a Loan's bytes is this process's own and is dropped when the loan ends. A Block may be released
// while the server reads it: it is free when its last ticket has come back.
package peer
