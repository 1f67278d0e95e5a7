// Package execution knows what an instance of a backend has been lent: the requests of the batch that it executes, and
// those that it keeps after Execute has returned. It holds the rules of ownership of docs/backends.md, and finds what breaks them.
//
//	Custody          an instance; implements nothing, package engine calls it
//	└─ Batch         one Execute, and what that leaves; knows its tasks and nothing of the author's
//	   └─ entry      one request: answered or not, released or not
//	        ▲
//	Request ─┴─ Input, Response, Factory    what the author has; package sdk shows them
//
// A request is lent by Begin, and complete when it has been answered and released, in either order:
//
//	            ┌──── answered ────┐
//	lent ───────┤                  ├───▶ complete
//	            └──── released ────┘
//
// An Execute that fails makes all of its requests complete. What its author drops without an end, or still has when the
// instance is closed, is answered with an error, released and named in the log.
//
// Done of a batch is called when Execute has returned, and of sequence models when all requests have been released, too: the
// next request of a sequence may come then. The last response to a request that is sent inside Execute is held until that has returned,
// so that statistics are there before it; those of decoupled models are not.
//
// Callers: Begin and Returned are called by the goroutine of the instance, one after the other; Request, Response and Factory
// by any goroutine of the author's, one at a time for each; all else by any.
//
// Goroutines: none, but the runtime's, which calls what WhenDropped was given.
//
// Locks: Batch.mu, then Custody.mu; window.mu is a leaf. Nothing is handed up while one is held: while a goroutine hands up a response, others leave
// theirs in the entry's queue, so that responses keep their order.
//
// Memory: Begin retains the inputs, and the release of the request, or its end, releases them. What the author has lies in memory that
// nothing here points to, but for responses on their way up: so the garbage collector finds what the author has dropped. Memory of an output
// is the response's until it is sent, and then its receiver's; if it is dropped unsent, its memory goes back (WhenDropped).
package execution
