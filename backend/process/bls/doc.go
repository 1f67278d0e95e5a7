// Package bls has the BLS requests that the model in one process makes: it takes INFER,
// has the server execute the request, and sends what comes of it as INFER_RESPONSE. A
// life has one Requests.
//
//	INFER ─▶ Receive ─▶ copy ─▶ check ─▶ Host.Submit ─▶ scheduler ─▶ another process
//	          (reader)   (reader, or a goroutine of its own)               │
//	INFER_RESPONSE ◀─ respond ◀─ kept while DEMAND is 0 ◀─ deliver ◀───────┘
//	                                         (reader of the other process, mostly)
//
// A request is in flight from Receive until its last response has been sent or dropped.
// Meanwhile it may be cancelled, when the clients of the execution that it was made in have
// gone (CancelBatch) or by STOP_INFER; forgotten, so that its responses are dropped; and, if
// it is a stream, loose: its responses no longer keep the other model waiting (unread.go).
//
// Requests that execute in another process are known there too: Execute notes where the
// latest one is, and a Follower looks for its response while a goroutine spins.
//
// Callers: Receive and Steer are called with the channel's receive lock held, so one at a
// time and in the order of the frames. Close is called once nothing is received any more;
// everything else may be called by any goroutine. What a Session is asked may take its
// life's lock.
//
// Goroutines: one for each copy of more than 1 MiB and for each question whether another
// model is ready; Close waits for them. It does not wait for the models that execute
// requests: these are cancelled, and what they still send is dropped.
//
// Locks: the channel's receive lock, then the lock of one request's responses, then
// Config.Submit. Requests.mu is taken inside the lock of a request, for a few instructions;
// a request's lock is never taken while Requests.mu is held. The lock of a request is held
// while one of its responses is sent, so that they keep their order, but for responses that
// a goroutine of its own copies: then `away` keeps the order.
//
// Memory: inputs that lie in the process's arena are copied once, into the pool of requests,
// and go back at once; inputs that are loans are passed on. Either is held until the last
// response, also one that the end of the other process makes, and given up by ended.
// Both are bounded: 16,384 requests, copies of as many bytes as the arena may have, and the share
// of the model. Responses are charged to the model that makes them. While they wait for the
// process they count for the process's own model (answerForLocked). A
// response is released when it has been sent; its outputs are the process's by ticket then.
package bls
