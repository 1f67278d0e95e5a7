// Package execution tracks the requests that an instance of a backend holds: those of the batch
// that it executes, and those that it keeps after Execute has returned. It enforces the rules of
// ownership in docs/backends.md and reports violations.
//
//	Tracker          an instance; package engine calls it
//	└─ Batch         one Execute and its remaining requests
//	   └─ entry      one request: answered or not, released or not
//	        ▲
//	Request ─┴─ Input, Response, Factory    the author's view, shown by package sdk
//
// A request is lent by Begin, and complete when it has been answered and released, in either order:
//
//	            ┌──── answered ────┐
//	lent ───────┤                  ├───▶ complete
//	            └──── released ────┘
//
// An Execute that fails completes all of its requests. A request that its author drops, or still
// holds when the instance is closed, gets an error as its response, is released, and is named in
// the log.
//
// Done of a batch is called when Execute has returned; for sequence models, when all requests have
// been released too, because the next request of a sequence may follow. A last response sent inside
// Execute is held until Execute has returned, so that statistics arrive first, except for decoupled
// models.
//
// The goroutine of the instance calls Begin and Returned. Any goroutine of the author's may use a
// Request, Response or Factory, but only one at a time.
//
// Locks: Batch.mu, then Tracker.mu; occupancy.mu is a leaf. No response is passed on with a lock
// held: while a goroutine does so, others leave theirs in the entry's queue, so that responses keep
// their order.
//
// Memory: Begin retains the inputs until the request is released or ended. The author's objects lie
// in memory to which nothing here points, except responses on their way, so that the garbage
// collector detects dropped ones. Memory of an output belongs to the response until it is sent,
// then to its receiver; if the response is dropped unsent, WhenDropped releases the memory.
package execution
