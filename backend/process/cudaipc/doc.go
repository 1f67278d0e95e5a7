// Package cudaipc knows which memory of devices stubs have lent, and to which stubs it has
// been announced (docs/protocol.md, decision 0022). It never touches a device.
//
//	maker's stub ── LEND ──▶ Lent ── Borrow, for a descriptor ──▶ Memory, of a tensor
//	                          │                                     │
//	             UNLEND ─▶ released                                 ▼
//	consumer's stub ◀── ALLOCATION, FREED ── Announced ◀── Name, for a descriptor
//
// Each life of a stub has one Lent and one Announced. An allocation, foreign.Device, has a
// reference of its maker's Lent, up to UNLEND or the end of that life, and one for each
// Memory in it. With the last of them all stubs that know it are told FREED. What its maker
// leaves behind when it dies stays readable in each process that has opened it.
//
// Trust: a LEND is a stub's word. A handle that opens nothing, or something else, is found out by the
// process that opens it; sizes and offsets only bound what that process looks at, which is the
// maker's memory in any case.
//
// Locks: Receive and Borrow of a Lent are called with its channel's receive lock held, Name of
// an Announced under the lock of its encoder. Announced.mu is a leaf; no frame is sent while it
// is held. Close of both, and everything of a Memory, may be called by any goroutine.
//
// Memory: a Memory is counted, as a shm.Extent is. Its last Release sends the maker's ticket
// back, if the maker lives.
package cudaipc
