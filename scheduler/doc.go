// Package scheduler decides who waits, who is batched with whom and which
// instance is next.
//
// A Scheduler belongs to one loaded version of a model. Infer blocks the
// goroutine of the request until its last response has been handed up; Submit
// returns when the request has been accepted. The scheduler itself has no
// goroutine: whoever makes a request or an instance available moves things on.
//
//	Infer, Submit ──▶ lines ──▶ batch ──▶ instance.Execute ──▶ Batch.Done ──▶ next batch
//	                    ▲                                          │
//	                    ├───────── refused by a lost stub ─────────┤ to the front
//	                    └──────── released for a new round ────────┘ to the end
//
// A Batcher is the default scheduler and the dynamic batcher: the default one is
// the case that each request is a batch. batcher.go takes requests in, form.go
// decides who is in the next batch, dispatch.go when it is handed out, and
// instances.go to whom.
//
// A Sequence keeps the requests of one correlation id together, in a slot of one
// instance. sequence_slots.go decides who has one, sequence_idle.go for how long,
// sequence_direct.go and sequence_oldest.go what is executed together. What the
// model gets beside the client's inputs is in sequence_control.go and
// sequence_state.go.
//
// scheduler/ensemble is a Scheduler that has no instances and calls other models
// instead.
//
// Models call each other, so a request can wait for the execution that made it: the
// package waitgraph finds that. whereabouts.go tells it where requests are.
// Where the rate limiter has instances take turns (package ratelimit), a Batcher asks
// for a turn and forms its batch when that has come: turns.go.
package scheduler
