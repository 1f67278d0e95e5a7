// Package peer is the Go implementation of the stub's side of docs/protocol.md. The process of a
// backend's instance uses it to communicate with its supervisor, and so do tests of the supervisor.
//
//	         down ring                    up ring
//	Receive ◀─ [frame][frame] ◀─ server ◀─ [frame][frame] ◀─ Fill
//	   └ Route ─▶ Box ─▶ Receive of another goroutine
//
//	Loan    a block of *requests* that the server has lent: its bytes in a private mapping
//	Block   a block of this process's arena in *up*: outputs are written there and lent to the server
//
// No goroutine is dedicated to reading. A goroutine that waits for a frame reads the ring for all,
// puts the frames of others into their boxes, and leaves the reading to another goroutine when its
// own frame has arrived. So a frame that arrives while its receiver spins is taken without waking a
// thread.
//
// A Peer is open from Attach until the server ends or breaks the protocol; then each call returns
// that error. A block of the arena is in use, free, or hollow: free, with its memory given back.
// All of it is safe for concurrent use.
//
// Locks: reading decides which goroutine reads, sending which one writes the up ring. waiting,
// tickets, Box.mu, Loans.mu and Arena.mu are leaves. Route is called with reading held and must not
// wait for a frame. Functions that Fill calls only write the frame.
//
// Memory: a frame's body is a copy on the heap. Bytes of a Loan or a Block are valid until its last
// Release. Bytes written to a Loan stay private to this process and are dropped when the loan ends.
// A Block may be released while the server reads it; it is free when its last ticket has come back.
package peer
