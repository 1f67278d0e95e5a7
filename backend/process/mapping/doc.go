// Package mapping has stubs map clients' regions of shared memory themselves, so that large
// inputs reach their models without a copy, and large outputs their clients with one.
//
//	Want ─ descriptor by socket, MAP by ring ─▶ asked ─ MAPPED ─▶ mapped ─▶ Number
//	                                             │  │               │
//	                              MAPPED: refused ◀─┘               │
//	                                             ▼                  ▼
//	       the client's region has ended: ─── UNMAP ───────────▶ leaving ─ MAPPED ─▶ forgotten
//
// A Table belongs to one life of a stub and says what that stub has mapped. A region is asked
// for by the first request that could use it, which is copied, as are all others until the
// stub has acknowledged. So nothing waits for a stub: one that refuses, or is late, has its
// inputs copied. The next life begins with an empty Table.
//
// The descriptor that goes to the stub is opened anew, if the file still belongs to our user
// alone (shm.Shared): read-only for inputs, also writable for outputs. These are two mappings
// with two numbers, as models must not see by their inputs what is written. Of each region a
// stub has them up to its end: then nothing of it is lent any more, as each loan has a
// reference to it, and no request is under way that wants an output there.
//
// Trust: MAPPED comes from a stub. One that nothing was asked for, a second answer, or an
// end that was not asked for breaks the protocol. A stub that says that it has mapped what
// it has not answers its own batches with errors.
//
// Locks: Table.mu is held while a descriptor is put into the socket, which does not wait. No
// frame is sent while it is held. shm.Shared calls ended without a lock of its own.
//
// Memory: a Table refers to a region without holding a reference. Callers of Want hold one,
// and so the region cannot end before its MAP has been sent.
package mapping
