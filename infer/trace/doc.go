// Package trace records what happens to a request, and when: the entries that stand in
// Triton's trace files and, as spans, in OpenTelemetry's. It decides nothing (which
// requests are traced is the matter of package server/tracing) and writes nothing.
//
//	Tree                       one request of a client that was chosen
//	└── Trace                  its record; the field Trace of infer.Request
//	    ├── Trace              a step, if its model is an ensemble
//	    └── Trace              a BLS request that was made with trace=
//
// A request that is not traced has a nil *Trace. All methods may be called on nil and do
// nothing then: that check is all that a request costs which is not traced.
//
// # States of a Trace
//
//	made ──Begin──▶ begun ──Queued──▶ queued ──Given──▶ given ──Executed──▶ executed
//	                                                       └──Returned──▶ queued
//
// A Trace that has begun ends with its last response or its refusal, or with the return
// of the batch that it is in if that comes later. The end is REQUEST_END. A request that
// is executed several times is given and executed as often.
//
// A Tree is complete when all its begun traces have ended and the front end has called
// Finish. Then Done of its Config is called once, by the goroutine that was last, with
// nothing locked; it must not block, as that goroutine may hold a channel's lock.
// From then on nothing in the Tree changes: what comes late is dropped, and Done's
// receiver reads the records without a lock.
//
// # Callers
//
// A front end makes the Tree and calls Finish; the version that executes a request calls
// Begin, Responded or Refused; its scheduler calls the others, from the goroutines that
// bring batches and their ends.
//
// # Locks
//
// Tree.mu guards the tree and its traces. Nothing else is locked under it, and nothing
// is called but the clock.
//
// # Memory
//
// A Trace keeps no reference to tensors: Tensor makes a text of the bytes that it is lent.
// Before it does, it takes the memory of the longest text that they could become from
// Config.Memory, and without room leaves the tensor out; so does Activity with its name; what Done's receiver has of the
// tree counts until it calls Release.
package trace
