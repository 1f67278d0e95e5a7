// Package handover hands batches down to instances and responses up to senders, for
// all schedulers.
//
// Give hands a batch to an instance, and Returned notes what became of it; a Recipient
// hands responses to the Sender of a request. Behind each is code that may panic: the
// panic ends the batch or the request, and the scheduler goes on.
//
// Callers: the batchers. The goroutine that has formed a batch gives it; the goroutine in which
// the instance calls Done calls Returned, and the goroutine that brings a response Tell, and Dismiss
// after the last response. Nothing here has a state of its own.
//
// Locks: Give and the methods of Recipient are called with no lock held: instance and
// Sender may call back into the scheduler, and the graph asks it where requests are.
// WatchLocked alone is called with the scheduler's lock, so that a request is not watched
// after its end: Dismiss comes after that has been noted.
//
// Memory: a Recipient is embedded in the scheduler's own request. Neither side
// allocates unless something has panicked.
package handover
