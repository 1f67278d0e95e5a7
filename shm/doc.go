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
// States: a span of a pool is held by one block or spare; a block and an extent live from
// one reference to none; a Pool or an Arena that is closed lends nothing, and its region
// goes with the last reference.
//
// A Shared is a range of a client's file, which stubs may map. This process neither maps
// it here nor touches its bytes: it hands descriptors on, and is told when it ends.
//
// Locks: Pool.mu, Loans.mu, Arena.mu, Shared.mu and NamedFiles.mu are leaves: references are released,
// and OnFree and OnGone called, without them. What is called under one must not come back:
// PoolConfig.Charge and Refund under Pool.mu, an arena's put under Arena.mu.
//
// Callers: any goroutine, as long as it has a reference to the Block, the Extent or the
// Region. OnFree and OnGone are called by the maker, before others have what it made.
package shm
