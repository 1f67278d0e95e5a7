// Package scheduler holds the contract of all schedulers, and the Batcher: Triton's
// default scheduler and its dynamic batcher. A Scheduler decides which requests wait,
// which of them make a batch, and which instance executes it.
//
// A Scheduler belongs to one loaded version of a model. Infer blocks the goroutine of
// the request until its last response has been handed up; Submit returns when the
// request has been accepted. Package models makes and wires schedulers; backend.Events
// (Available, Lost) come from instances, or from what stands between: the rate limiter, the
// stacking of batches, the warm-up barrier of models.
//
//	Infer, Submit ──▶ lines ──▶ batch ──▶ instance.Execute ──▶ Batch.Done ──▶ next batch
//	                    ▲                                          │
//	                    └───────── refused by a lost stub ─────────┘ to the front
//
// A request of a Batcher is queued, then in a batch that an instance has ahead or
// executes, and ended when its last response has been handed up. Refused and withdrawn
// batches make their requests queued again. It ends without an execution when it is
// cancelled, past its deadline, refused by the wait graph, or without an instance that
// could still come back. A request that its model releases for another round goes to
// BatcherConfig.Again, which package sequence sets; without it that is an error.
//
// Which instances are available, lost, hopeless or retiring, the roster knows
// (Batcher.instances, package roster). An available instance is idle, executes one
// batch, or executes one and has one ahead (member); a lost one has nothing. Retire
// lets an instance finish and gives it nothing more.
//
// A Batcher has no goroutine: the goroutine that brings a request or an instance, or
// that ends a batch, calls dispatch. One timer calls it where time alone changes what
// can be executed.
//
// Handing over: which instance gets a batch is decided with Batcher.mu held, and Execute
// is called after unlocking, since an instance may call Done within it. In between the
// batch is the member's, which is not idle: no other goroutine gives the instance
// anything. Three things may happen meanwhile:
//   - The instance is lost. Lost empties its member at once; Execute of a lost instance
//     refuses the batch, and its requests are first in line again. Until Execute returns,
//     such a batch may have been given to another member already: what is noted after
//     Execute concerns the member that the batch was given to, not batch.on.
//   - A client leaves. cancel finds its request in no line, and the instance may not have
//     it yet: cancelGone tells the instance after Execute.
//   - Another instance becomes idle. A batch ahead cannot be asked back before Execute
//     has returned: member.handed says so, and the goroutine that sets it looks for idle instances.
//
// batcher.go takes requests in, queue.go lets them wait, form.go decides which are in
// the next batch, dispatch.go when it is handed out, instances.go to which instance,
// order.go in which order responses leave, whereabouts.go tells the wait graph where
// requests are, and turns.go asks the rate limiter for a turn.
//
// Packages below: roster keeps the instances of each scheduler, waitgraph finds BLS requests that wait for themselves, ratelimit has
// instances of all models take turns, batching is what a config says about batches,
// handover calls instances and senders, linked is a list. Other Schedulers import this
// package, never the reverse: sequence keeps the requests of one correlation id together,
// in a slot of one instance, and has, with the strategy Oldest, a Batcher for each
// instance, to which it submits by submitted.go; ensemble has no instances and calls other models. stacked is an Instance.
//
// Locks: the wait graph's search lock, before Batcher.mu, before the wait graph's mu,
// ratelimit.Limiter.mu and order.mu. With Batcher.mu held, Observer.Pending,
// Pipeliner.Ahead and a Strategy may be called; Execute, Withdraw, Cancel, Sender,
// Released, Again and drained are not. A Census, the lines, the
// roster and what each member has are guarded by Batcher.mu; Member.Instance alone is
// read without it, after unlocking, to call the instance. order.mu is given back while
// a response is handed up.
//
// Memory: a request is one allocation, with the batch that it is if it is executed by
// itself. A Scheduler keeps no request after its last response, and owns no tensor:
// inputs belong to the caller until Infer returns or the last response has been handed
// up, outputs to the Sender.
package scheduler
