// Package backend is the contract between schedulers and what executes models: a Backend
// opens model versions, a Model has instances, an Instance executes batches. It owns
// interfaces, what crosses them (Task, Batch, Report) and their clock (Now), and has no
// state.
//
//	Backend.Open ──▶ Model ──AutoComplete──▶ ──Start──▶ instances ──Close──▶ nothing left
//	                                            available ⇄ lost
//
// Lives: Open only looks, AutoComplete may run the model's code once, Start brings all
// instances up, Close takes everything down and returns when nothing is left. Between
// Start and Close an instance may be lost and become available again by itself; it says so
// through Events. Other interfaces are optional, and asked for by type assertion:
// Innermost finds what stands behind wrappers.
//
// Callers: package models opens, completes, starts and closes a Model, and exchanges its
// instances; these calls follow each other, but Close may come at any time. A scheduler
// calls instances, from any goroutine: Execute again only after Done, or where
// Pipeliner.Ahead allows one batch more. An instance calls Batch.Done once and each task's
// Send until a final response; both may be called inside Execute, and the scheduler may
// call Execute inside Done.
//
// Locks: Execute, Withdraw, Cancel, Ready and Await are called without a lock of the
// scheduler's. Pipeliner.Ahead and a Strategy are called with its lock held: they neither
// block nor call back. A backend calls Events, Done and Send without a lock that Execute,
// Withdraw or Cancel takes, since the scheduler may call these at once.
//
// Memory: a task's inputs may be read until the task's last response is handed to Send, and
// not be written. A response belongs to its receiver, which releases it; until then its
// outputs stay valid, also when the instance that made them is lost. A Batch and its Tasks
// belong to the instance from Execute to Done. After Done it keeps the tasks that it has
// not answered, but for those of a Refused report and the Rescheduled ones, which are the
// scheduler's again.
package backend
