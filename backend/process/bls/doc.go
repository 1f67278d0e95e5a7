// Package bls executes the BLS requests of the model in one process: it receives INFER, submits the
// request to the server, and sends the responses as INFER_RESPONSE. A life has one Requests.
//
//	INFER ─▶ Receive ─▶ copy ─▶ check ─▶ Host.Submit ─▶ scheduler ─▶ another process
//	          (reader)   (reader, or a goroutine of its own)               │
//	INFER_RESPONSE ◀─ respond ◀─ kept while DEMAND is 0 ◀─ deliver ◀───────┘
//	                                         (reader of the other process, mostly)
//
// A request is in flight from Receive until its last response has been sent or dropped. Until then
// three things may happen. STOP_INFER, or the disconnection of all clients of its execution
// (CancelBatch), cancels it. It may be forgotten, so that its responses are dropped. A stream may
// leave its window, so that its responses no longer make the other model wait (unread.go).
//
// The process that executes a request knows it too: Execute records where the latest one is, and a
// Follower looks for its response while a goroutine spins.
//
// Receive and Control are called with the channel's receive lock held, one at a time and in the
// order of the frames. Close is called when nothing is received any more. Any goroutine may call
// the other methods. A method of Session may take its life's lock.
//
// Goroutines: there is one for each copy of more than 1 MiB, and one for each request whose model
// has to be asked whether it is ready. Close waits for them. It does not wait for the models that
// execute requests: it cancels these requests, and their later responses are dropped.
//
// Lock order: the channel's receive lock, the lock of one request's responses, Config.Encoder.
// Requests.mu is taken inside the lock of a request, briefly; a request's lock is never taken while
// Requests.mu is held. The lock of a request is held while one of its responses is sent, so that
// they keep their order. For a response that another goroutine copies, `away` keeps the order
// instead.
//
// Memory: inputs in the process's arena are copied once, into the pool of requests, and returned at
// once; inputs that are loans are passed on. Both are held until the last response, even if that
// response is an error because the other process has ended; then ended releases them. Both are
// limited: 16,384 requests, copies of as many bytes as the arena may have, and the share of the
// model. Responses are charged to the model that makes them. While they wait for the process they
// count for the process's own model (answerForLocked). A response is released when it has been
// sent; from then on the process holds its outputs by ticket.
package bls
