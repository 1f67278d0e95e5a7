// Package plugin runs a backend as the process of one instance, started by a server. The program's
// main function calls Serve.
//
//	Serve ─▶ process   cookie, handshake, process group, lifeline, signals, exit codes
//	      └▶ session   AUTO_COMPLETE INITIALIZE … EXECUTE … FINALIZE; routes frames
//	         ├ batch      decodes EXECUTE; the contexts of its requests
//	         ├ responses  encodes EXECUTED and RESPONSE; windows (CREDIT)
//	         ├ outgoing   tensors of a frame: in it, in the arena, or passed on in a loan
//	         ├ inferences requests of the author to other models (INFER)
//	         ├ calls      load, unload, ready, metrics (CALL, METRIC)
//	         ├ standby    reads the ring while Execute takes long
//	         └ logs       LOG
//
// Package engine enforces the rules of ownership, and ipc/peer those of bytes and frames.
//
// The instance's goroutine of the engine reads the ring and calls Execute itself, so a small
// request is executed without waking another thread. A goroutine that waits for a reply of the
// server also reads for a moment; otherwise the standby does.
//
// A session optionally receives AUTO_COMPLETE, then INITIALIZE, and finally FINALIZE. A batch is
// executed, and its EXECUTED sent, before the next one begins; responses to its requests may follow
// later.
//
// Locks: the locks of a batch, of the open requests, of the inferences and of the names are never
// nested. None except names.mu is held while a frame is sent. ipc/peer's reading is held where
// frames are routed.
//
// Memory: EXECUTE lends inputs. The batch holds each loan until its EXECUTED is sent, and the
// engine until the author releases the request. Outputs lie in the arena, small ones on the heap.
package plugin
