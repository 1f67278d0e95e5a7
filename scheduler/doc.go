// Package scheduler decides who waits, who is batched with whom and which
// instance is next.
//
// A Scheduler belongs to one loaded version of a model. Infer blocks the
// goroutine of the request until its last response has been handed up; Submit
// returns when the request has been accepted. The scheduler itself has no
// goroutine: whoever makes a request or an instance available moves things on.
//
//	Infer, Submit ──▶ queue ──▶ instance.Execute ──▶ Batch.Done ──▶ next from the queue
//	                    ▲                                │
//	                    ├──── refused by a lost stub ────┤ to the front
//	                    └─── released for a new round ───┘ to the end
//
// An Ensemble is a Scheduler that has no instances and calls other models instead.
//
// Models call each other, so a request can wait for the execution that made it.
// A Graph, which schedulers share, finds that.
package scheduler
