// Package scheduler holds the contract of all schedulers, and the Batcher: Triton's default
// scheduler and its dynamic batcher. A Scheduler decides which requests wait, which of them form a
// batch, and which instance executes it.
//
// A Scheduler belongs to one loaded version of a model. Infer blocks the goroutine of the request
// until its last response has been sent; Submit returns when the request has been accepted. Package
// models creates schedulers and connects them. Events of instances (backend.Events) pass through
// the rate limiter, the stacking of batches and the warm-up barrier before they reach a scheduler.
//
//	Infer, Submit ──▶ lines ──▶ batch ──▶ instance.Execute ──▶ Batch.Done ──▶ next batch
//	                    ▲                                          │
//	                    └───────── refused by a lost stub ─────────┘ to the front
//
// A request is queued, then part of a batch, and ended when its last response has been sent. It is
// queued again if an instance refuses or returns its batch. It ends without an execution if it is
// cancelled, past its deadline, rejected by the wait graph, or if every instance is hopeless. A
// request that its model reschedules goes to BatcherConfig.Again, which package sequence sets.
//
// The roster tracks which instances are available, lost, hopeless or retiring. An available
// instance is idle, executes one batch, or executes one and has another ahead (member).
//
// A Batcher has no goroutine. Every goroutine that submits a request, makes an instance available
// or ends a batch calls dispatch; a timer calls it when a delay or a deadline ends.
//
// # Handing over a batch
//
// The instance of a batch is chosen with Batcher.mu held. Execute is called after unlocking,
// because an instance may call Done inside it. In between, the batch belongs to the member, which
// is not idle, so no other goroutine gives the instance anything. Three things may happen
// meanwhile:
//   - The instance is lost. Lost empties its member at once. Execute then refuses the batch, and
//     its requests return to the front of their lines. Before Execute returns, such a batch may
//     already belong to another member, so code after Execute uses the first member, not batch.on.
//   - A client disconnects. cancel finds its request in no line, and the instance may not have it
//     yet. cancelGone tells the instance after Execute.
//   - Another instance becomes idle. A batch ahead cannot be withdrawn before Execute has returned.
//     The goroutine that then sets member.handed looks for idle instances.
//
// # Locks
//
// The order is: the wait graph's search lock, Batcher.mu, then the wait graph's mu,
// ratelimit.Limiter.mu or order.mu. Observer.Pending, Pipeliner.Ahead and a Strategy may be called
// with Batcher.mu held; Execute, Withdraw, Cancel, Sender, Released, Again and drained may not.
// Batcher.mu guards the Census, the lines, the roster and each member except Member.Instance.
// order.mu is unlocked while a response is sent.
//
// # Memory
//
// A request is one allocation, which includes its batch of one. A Scheduler keeps no request after
// its last response and owns no tensor. Inputs belong to the caller until Infer returns or the last
// response has been sent; outputs belong to the Sender.
package scheduler
