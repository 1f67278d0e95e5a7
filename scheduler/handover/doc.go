// Package handover passes batches to instances and responses to senders, for all schedulers.
//
// Give passes a batch to an instance, and Returned records its outcome. A Delivery passes responses
// to the Sender of a request. Instances and senders may panic: the panic ends the batch or the
// request, and the scheduler continues. Delivery is embedded in the scheduler's own request.
//
// Locks: everything but WatchLocked is called with no lock held, because instances and senders may
// call back into the scheduler, and the graph asks it for the positions of requests.
package handover
