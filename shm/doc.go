// Package shm provides the memory that the supervisor shares with the stubs.
//
// A Region is one shared-memory file, created with a large sparse size and mapped once; reserving a
// part allocates it. A Pool allocates Blocks in a region that the supervisor writes; Loans records
// which blocks a stub holds; an Arena checks a stub's claims about the region that it writes.
//
//	0         64 KiB    192 KiB                         sparse end
//	+---------+---------+-------------------------------+
//	| words   | ring    | arena (up file only)          |   a channel's files
//	+---------+---------+-------------------------------+
//	+--------+-------------+------+---------------------+
//	| block  | block       | free |  never reserved yet |   the requests file
//	+--------+-------------+------+---------------------+
//
// Ownership: a Block has a reference count. Alloc makes the caller its owner; a caller that keeps
// it longer retains it; the last Release frees its bytes for others. The bookkeeping is private to
// this process: none of it lies in the region.
//
// Trust: the supervisor alone writes the requests file and a channel's down
// file; stubs hold them read-only. An up file is written by a stub, which may be
// wrong or dying at any instant: an offset, a length or a ticket that comes from
// it is read once, checked here, and only then used.
//
// Faults: a memfd is sealed, so a mapped range cannot vanish. The stub that writes a named file can
// truncate it; a caller that touches its bytes does so under Guard, or in a goroutine with
// debug.SetPanicOnFault.
//
// A span of a pool is held by one block, or spare. A block and an extent live from their first
// reference to their last. A closed Pool or Arena lends nothing, and its region ends with the last
// reference.
//
// A Shared is a range of a client's file, which stubs may map. This process does not map it here or
// touch its bytes: it passes descriptors on, and is told of its end.
//
// Locks: Pool.mu, Loans.mu, Arena.mu, Shared.mu and NamedFiles.mu are leaves: references are
// released, and OnFree and OnGone called, without them. Functions that are called under one must
// not call back: PoolConfig.Charge and Refund under Pool.mu, an arena's put under Arena.mu.
//
// Any goroutine may call the package while it has a reference to the Block, the Extent or the
// Region. The creator calls OnFree and OnGone before others have its object.
package shm
