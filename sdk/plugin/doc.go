// Package plugin runs a backend as the process of one instance, which a server has started: main calls Serve.
//
//	Serve ─▶ process   cookie, handshake, process group, lifeline, signals, exit codes
//	      └▶ session   AUTO_COMPLETE INITIALIZE … EXECUTE … FINALIZE; frames to whom they concern
//	         ├ batch      EXECUTE taken apart; the contexts of its requests
//	         ├ answers    EXECUTED and RESPONSE put together, windows (CREDIT)
//	         ├ outgoing   tensors of a frame: in it, in the arena, or passed on in a loan
//	         ├ inferences requests of the author to other models (INFER)
//	         ├ calls      load, unload, ready, metrics (CALL, METRIC)
//	         ├ deputy     reads the ring while Execute takes long
//	         └ logs       LOG
//
// The rules of ownership are those of sdk/engine, bytes and frames those of ipc/peer.
//
// One goroutine, the engine's of the instance, reads the ring and calls Execute with what it has read, so that a small request
// is answered without waking another thread. Who waits for an answer of the server reads for a moment too; else the deputy does.
//
// States: a session is told AUTO_COMPLETE or not, INITIALIZE, and FINALIZE, in this order. A batch is executed, and answered by one
// EXECUTED, before the next one is begun; its requests may be answered later.
//
// Locks: those of a batch, of the open requests, of the inferences and of the names; none is held while another is taken, or
// while a frame is sent, but names.mu. ipc/peer's reading is held where frames are routed.
//
// Memory: in EXECUTE, the server lends inputs, and the batch holds each loan until its EXECUTED is sent; the engine holds it until the author
// releases the request. Outputs lie in the arena, or on the heap where they are small.
package plugin
