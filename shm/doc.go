// Package shm is where the bytes lie that the supervisor and the stubs share.
//
// A Region is one shared-memory file, made with a large sparse size and mapped
// once; it becomes real memory where it is reserved. A Pool allocates Blocks in
// a region that the supervisor writes; Loans remember which blocks a stub
// holds; an Arena checks what a stub says about the region that it writes.
//
//	0         64 KiB    192 KiB                         sparse end
//	+---------+---------+-------------------------------+
//	| words   | ring    | arena (up file only)          |   a channel's files
//	+---------+---------+-------------------------------+
//	+--------+-------------+------+---------------------+
//	| block  | block       | free |  never reserved yet |   the requests file
//	+--------+-------------+------+---------------------+
//
// Ownership: a Block is counted. Alloc makes the caller its owner; a caller that
// keeps it longer retains it; the last Release makes its bytes free for others.
// The bookkeeping is private to this process: nothing of it lies in the region.
//
// Trust: the supervisor alone writes the requests file and a channel's down
// file; stubs hold them read-only. An up file is written by a stub, which may be
// wrong or dying at any instant: an offset, a length or a ticket that comes from
// it is read once, checked here, and only then used.
//
// Faults: a memfd is sealed, so a mapped range cannot vanish. A named file can
// be truncated by the stub that writes it; a caller that touches its bytes does so
// under Guard, or in a goroutine with debug.SetPanicOnFault.
//
// Locks: Pool.mu, Loans.mu, Arena.mu and NamedFiles.mu are leaves: nothing is called while
// one is held.
package shm
