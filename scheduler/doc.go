// Package scheduler decides who waits, who is batched with whom and which
// instance is next.
//
// A Scheduler belongs to one loaded version of a model. Infer blocks the
// goroutine of the request until its last response has been handed up; the
// scheduler itself has no goroutine: whoever makes a request or an instance
// available moves things on.
//
//	Infer ──▶ queue ──▶ instance.Execute ──▶ Batch.Done ──▶ next from the queue
//	            ▲                                 │
//	            └──────── refused by a lost stub ─┘
package scheduler
