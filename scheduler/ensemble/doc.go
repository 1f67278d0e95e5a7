// Package ensemble is the scheduler of ensembles: models that have no instances of
// their own and consist of requests to other models, the steps.
//
// A Scheduler makes a flow of each request. The flow holds the version of each
// step's model, so that none is unloaded before the flow ends, and submits a step
// when each of its inputs has a value.
//
//	Infer, Submit ──▶ flow ──▶ step ready ──▶ in-flight limiter ──▶ Composed.Submit ──▶ the model's scheduler
//	                    ▲                                                                    │
//	                    └────────────── outputs of a response become values ◀────────────────┘
//
// A step's request is ready, perhaps held (it waits for its turn in the in-flight
// limiter), then submitted, and over after its last response or when it is dropped.
// The flow ends when no step is ready, held or submitted; its last response leaves
// then and not before, because steps read the client's memory.
//
// The first error of a step fails the flow: failLocked puts the ensemble's name in front of its
// text and keeps its code. Steps that have not been submitted are dropped.
//
// Values have an iteration: what is made from the k-th response of a decoupled step
// is in row k, and so joins only with what is made from that same response.
//
// Goroutines: there are none here. The goroutine that brings something new (the
// client's request, a step's response, a turn) notes it under flow.mu. One goroutine
// at a time acts on the notes (actLocked) and unlocks flow.mu while it calls a
// model's scheduler, the client's Sender or another flow; a second one notes and
// returns. So step requests and responses leave in the order in which they were
// decided, and a model that responds inside Submit does not deepen the stack.
//
// Locks: flow.mu before inflightLimiter.mu. Scheduler.mu guards the Census alone,
// and is taken without the other two. No lock is held while a model's scheduler or
// a Sender is called; Composer.Hold and the other methods of Composed may be called
// with flow.mu held.
//
// Memory: a value owns one reference to its tensor, and one to its response's place
// in the window of the decoupled model that sent it (infer.Response.Slot). The last
// taker of a value gets these references; the others retain their own. The flow
// releases a step's inputs after the step's last response; the outputs in a response
// of the ensemble belong to the client's Sender. Places are given up early where keeping them could block the model that
// waits for them: see window.
//
// The tables of a Scheduler (tensors by number, plans) do not change after New.
package ensemble
