// Package ensemble is the scheduler of ensembles: models without instances that consist of requests
// to other models, the steps.
//
// A Scheduler creates a flow for each request. The flow holds the version of each step's model, so
// that none is unloaded before the flow ends, and submits a step when each of its inputs has a
// value.
//
//	Infer, Submit ──▶ flow ──▶ step ready ──▶ in-flight limiter ──▶ Composed.Submit ──▶ the model's scheduler
//	                    ▲                                                                    │
//	                    └────────────── outputs of a response become values ◀────────────────┘
//
// A step's request is ready, perhaps held (waiting for the in-flight limiter), then submitted, and
// over after its last response or when it is dropped. The flow ends when no step is ready, held or
// submitted. Its last response is sent then and not earlier, because steps read the client's
// memory.
//
// The first error of a step fails the flow: failLocked prefixes the ensemble's name and keeps the
// code. Steps that have not been submitted are dropped.
//
// Values belong to iterations. The k-th response of a decoupled step, and everything computed from
// it, belongs to iteration k; values of different iterations are never combined.
//
// Goroutines: the package starts none. A goroutine that brings a request, a response or a turn
// records it under flow.mu. One goroutine at a time acts on these events (actLocked); it unlocks
// flow.mu while it calls a model's scheduler, the client's Sender or another flow. Others record
// their events and return. So requests and responses leave in the order of the decisions, and a
// model that responds inside Submit does not deepen the stack.
//
// Locks: flow.mu, then inflightLimiter.mu. Scheduler.mu guards only the Census and is taken without
// the other two. No lock is held while a model's scheduler or a Sender is called. Composer.Hold and
// the other methods of Composed, and Take and Give of a budget.Account, may be called with flow.mu
// held.
//
// Memory: a value owns one reference to its tensor, and one to its response's slot in the window of
// the decoupled model that sent it (infer.Response.Slot). After the first iteration it also owns
// one to the response's own memory (infer.Response.Held), which charges the model for steps that
// wait. The last taker of a value gets these references; the others retain their own. The flow
// releases a step's inputs after the step's last response; the outputs of a response belong to the
// client's Sender. Slots are released early where keeping them could block the model that waits for
// them: see slotHolder. The structures of a request are on Config.Memory: those of the flow with
// its first iteration, of each later iteration and of each response that waits.
package ensemble
