// Package trace records the events of a request: the entries of Triton's trace files and the spans
// of OpenTelemetry. Package server/tracing decides which requests are traced, and writes the files.
//
//	Tree                       one traced request of a client
//	└── Trace                  its record; the field Trace of infer.Request
//	    ├── Trace              a step, if its model is an ensemble
//	    └── Trace              a BLS request that was made with trace=
//
// An untraced request has a nil *Trace. All methods accept nil and then do nothing.
//
// # States of a Trace
//
//	made ──Begin──▶ begun ──Queued──▶ queued ──Given──▶ given ──Executed──▶ executed
//	                                                       └──Returned──▶ queued
//
// A Trace ends with its last response or rejection, or with the return of its batch if that comes
// later. The end is REQUEST_END. A request that is executed several times has several executions.
//
// A Tree is complete when all its begun traces have ended and the front end has called Finish. The
// goroutine that completes it calls Done once, with nothing locked. Done must not block, because
// that goroutine may hold a channel's lock. A complete Tree does not change, so its receiver needs
// no lock.
//
// A front end creates the Tree and calls Finish. The version that executes a request calls Begin,
// Responded or Refused; its scheduler calls the other methods.
//
// Tree.mu guards the tree and its traces. With it held, only the clock is called.
//
// A Trace keeps no reference to tensors: it stores their texts. Memory is charged in advance for
// the longest possible text, and refunded by Release. Without room the tensor or activity is left
// out.
package trace
