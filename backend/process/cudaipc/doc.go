// Package cudaipc tracks the device memory that stubs have lent, and the stubs to which it has been
// announced (docs/protocol.md, decision 0022). It never touches a device.
//
//	maker's stub ── LEND ──▶ Lent ── Borrow, for a descriptor ──▶ Memory, of a tensor
//	                          │                                     │
//	             UNLEND ─▶ released                                 ▼
//	consumer's stub ◀── ALLOCATION, FREED ── Announced ◀── Name, for a descriptor
//
// Each life of a stub has one Lent and one Announced. An allocation, foreign.Device, has a
// reference of its maker's Lent, until UNLEND or the end of that life, and one for each Memory in
// it. With the last reference, all stubs that know it receive FREED. Allocations of a dead maker
// stay readable in each process that has opened them.
//
// Trust: a LEND is a stub's claim. The process that opens the handle detects one that opens
// nothing, or something else. Sizes and offsets only limit the reads of that process, which are in
// the maker's memory in any case.
//
// Locks: Receive and Borrow of a Lent are called with its channel's receive lock held, Name of an
// Announced under the lock of its encoder. Announced.mu is a leaf; no frame is sent while it is
// held. Any goroutine may call Close of both, and all methods of a Memory.
//
// Memory: a Memory is counted like a shm.Extent. Its last Release returns the maker's ticket if the
// maker lives.
package cudaipc
