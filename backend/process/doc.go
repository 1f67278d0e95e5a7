// Package process hosts the instances of models in processes of ours, one process for
// each instance, whatever runs in it. It starts them, speaks with them over the rings of
// package ipc, answers for them when they are lost, and starts them anew.
//
//	Supervisor           of all processes; this process has one
//	└─ Model             a version; implements backend.Model
//	   └─ Instance       outlives its processes; implements backend.Instance
//	      └─ life        one process and all that belongs to it: channel, loans, tasks
//
// Program is the seam to a language: which program a process runs, with which files, what
// AUTO_COMPLETE and INITIALIZE tell it, and how its faults read. A backend opens its
// models by Supervisor.Open with a Program for each; nothing else here depends on it.
// Package launch keeps the processes themselves, package output what they print; package
// frames turns requests and responses into the bodies of frames, and back; packages bls
// and hostcalls have what a model asks of the server. A process is called a stub, which it
// is of the model: the other side of the protocol.
//
// An instance has five states:
//
//	Starting ──▶ Ready ◀──▶ Busy
//	   │           │          │
//	   │           ▼          ▼
//	   ├─────────▶ Lost ◀─────┘      gone without having been told to go
//	   ▼           │
//	 Stopped ◀─────┴── (from any)    told to go
//
// From Lost it goes to Starting again, after a pause.
//
// What is said until a process takes batches, and at its end; the process begins:
//
//	HELLO ─▶            it has attached to its files
//	◀─ AUTO_COMPLETE    the process that completes the model's config, alone
//	COMPLETED ─▶
//	◀─ INITIALIZE       of the process that has completed the config, too
//	INITIALIZED ─▶
//	◀─ EXECUTE …        Ready and Busy
//	◀─ FINALIZE         told to go
//	FINALIZED ─▶        requests that it has left open are answered before
//
// A life reads frames and hands each to the type whose job it is about:
//
//	handshake        what its process may say, and has said, until it takes batches and at
//	                 its end; handshake.go and complete.go ask
//	inFlight         the batches that it executes (inflight.go), which execute.go hands over
//	                 and conclude.go takes out again, and the requests that these leave
//	                 open, with their windows and credit (open.go)
//	readiness        READY? (ready.go)
//	bls.Requests     what its model asks of other models; bls.go has their session
//	hostcalls.Calls  what else its model asks of the server: load, unload, metrics
//	mapping.Table    which regions of clients its process has mapped; regions.go asks
//	cudaipc.Lent, cudaipc.Announced    memory of devices that its process has lent, and knows
//	ending           its process, and why that ends (ending.go); end.go settles what it leaves
//
// The package has more than 15 files because the four types of the drawing above know each
// other's state. A life is one state under its instance's lock: its batches and open streams
// answer for each other when it ends. An instance is what its lives have in common, and how
// one life ended decides when, and whether, the next begins.
//
// Callers: backend.Backend's callers, by the interfaces of package backend. A Program is
// called by the goroutines of its instances, several at once.
//
// Goroutines: Instance.Run lives one life after another. A life has five: a waiter
// for the process, the reader of its ring, one for each of its two outputs, and a waiter
// for these. A goroutine that waits for an answer may read the ring in the reader's
// place (Await); handle runs with the channel's receive lock held in either case.
//
// Memory: a task's inputs are lent to the stub by ticket until it gives the ticket back.
// Outputs are lent by the stub until they are released, by the holder of the response;
// where clients hold much of a stub's memory they are copied (frames). What a life
// has lent, and what it was lent, goes with it; responses that are being written keep
// their mapping until they are released.
//
// Trust: what a stub writes is checked in ipc, in frames and in executed.go. A stub that
// breaks the protocol is killed. Requests in flight in a stub that is lost are answered with
// the program's text for ProcessLost; a batch that the stub had not taken goes back to
// the scheduler.
//
// Locks: the channel's receive lock, then the scheduler's, then Instance.submit, then
// Instance.mu, then the channel's send lock. Supervisor.mu, Model.mu, and those of windows
// and readiness are held alone, or inside these for a few instructions; bls has its own.
// Nothing is handed up while Instance.mu is held.
package process
