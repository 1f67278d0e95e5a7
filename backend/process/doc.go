// Package process hosts model instances in child processes, one process for each instance, in any
// language. It starts the processes and exchanges frames with them over the rings of package ipc.
// When a process is lost, the package fails its requests, or returns them to the scheduler, and
// starts a new process.
//
//	Supervisor           of all processes; the server has one
//	└─ Model             a version; implements backend.Model
//	   └─ Instance       outlives its processes; implements backend.Instance
//	      └─ life        one process and everything that belongs to it: channel, loans, tasks
//
// A Program adapts the package to a language: it chooses the executable and its files, writes
// AUTO_COMPLETE and INITIALIZE, and words the errors. A backend passes a Program to
// Supervisor.Open for each model. Package launch owns the processes themselves, package output
// their output; package frames converts between requests or responses and frames; packages bls
// and hostcalls serve the requests that a model makes to the server. A process is called a stub.
//
// An Instance runs one life after another:
//
//	starting ──▶ ready ⇄ busy ──▶ lost ──▶ (pause) ──▶ starting
//	    └───────────┴─────┴──────────┴──▶ stopped
//
// The frames of one life:
//
//	HELLO ─▶            the process has attached to its files
//	◀─ AUTO_COMPLETE    only to the process that completes the model's config
//	COMPLETED ─▶
//	◀─ INITIALIZE       also to the process that has completed the config
//	INITIALIZED ─▶
//	◀─ EXECUTE …        the process is ready or busy
//	◀─ FINALIZE         the process is told to stop
//	FINALIZED ─▶        requests that it has left open are answered before this
//
// A life passes each frame to the type that is responsible for it:
//
//	handshake        the frames until the process takes batches, and at its end
//	inFlight         the batches that the process executes (inflight.go), which execute.go
//	                 submits and completes, and the requests that batches leave
//	                 open, with their flow control (open.go)
//	readiness        READY? (handshake.go)
//	bls.Requests     the model's requests to other models
//	hostcalls.Calls  the model's other calls to the server: load, unload, metrics
//	mapping.Table    which client regions the process has mapped (regions.go)
//	cudaipc.Lent, cudaipc.Announced    device memory that the process lends, or knows
//	ending           the process, and why it ends; end.go answers the work that it leaves
//
// Goroutines: Instance.Run lives one life after another. A life has five goroutines: a waiter
// for the process, the reader of its ring, one for each of its two outputs, and a waiter for
// these. A goroutine that waits for a response may read the ring instead of the reader (Await).
// In either case handle runs with the channel's receive lock held.
//
// Memory: a task's inputs are lent to the stub by ticket until the stub returns the ticket.
// Outputs are lent by the stub until the holder of the response releases them. Where clients hold
// much of a stub's memory, outputs are copied (package frames). The loans of a life end with it;
// responses that are still being written keep their mapping until they are released.
//
// Trust: packages ipc and frames and execute.go check everything that a stub writes. A stub
// that breaks the protocol is killed. Requests in flight in a lost stub get the program's text
// for ProcessLost; a batch that the stub had not taken goes back to the scheduler.
//
// Lock order: the channel's receive lock, the scheduler's lock, that of the life's encoder,
// inFlight.mu of the life, the channel's send lock. Supervisor.mu, Model.mu and the locks of
// windows and readiness are held alone, or inside these for a few instructions; package bls has its
// own. Nothing is passed up while inFlight.mu is held.
package process
