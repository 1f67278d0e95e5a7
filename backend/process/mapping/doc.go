// Package mapping lets stubs map clients' regions of shared memory, so that large inputs reach
// their models without a copy, and large outputs their clients with one.
//
//	Want ─ descriptor by socket, MAP by ring ─▶ asked ─ MAPPED ─▶ mapped ─▶ Number
//	                                             │  │               │
//	                              MAPPED: refused ◀─┘               │
//	                                             ▼                  ▼
//	       the client's region has ended: ─── UNMAP ───────────▶ leaving ─ MAPPED ─▶ forgotten
//
// A Table belongs to one life of a stub and tracks the regions that the stub has mapped. The first
// request that could use a region makes the Table ask for it. This request, and all others until
// the stub acknowledges, are copied. So nothing waits for a stub: if it refuses or is late, its
// inputs are copied. The next life begins with an empty Table.
//
// The descriptor for the stub is a new one, if the file still belongs to the server's user alone
// (shm.Shared): read-only for inputs, writable for outputs. These are two mappings with two
// numbers, because models must not see writes through their inputs. A stub keeps both until the
// region ends. Then nothing of the region is lent any more, because each loan holds a reference to
// it, and no request in flight wants an output there.
//
// Trust: MAPPED comes from a stub. An unexpected MAPPED, a second one, or an unrequested end
// violates the protocol. If a stub claims a mapping that it does not have, its own batches fail.
//
// Locks: Table.mu is held while a descriptor is written to the socket, which does not wait. No
// frame is sent while it is held. shm.Shared calls ended without its own lock.
//
// Memory: a Table refers to a region without holding a reference. Callers of Want hold one, so the
// region cannot end before its MAP has been sent.
package mapping
