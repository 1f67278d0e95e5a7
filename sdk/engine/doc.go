// Package engine runs backends that are written against package sdk. It calls the author's hooks in
// order, and adapts Execute([]*Request) error to the asynchronous contract of package backend, both
// in a server (package linked) and in the process of a plugin.
//
//	Open ─▶ Backend ─▶ Model ─▶ Complete ─▶ Start ─▶ Instance ─▶ Execute … ─▶ Instance.Close ─▶ Model.Close ─▶ Backend.Close
//	New                  NewModel (Complete, or Start) NewInstance
//
// Each Instance has a goroutine that creates the author's instance, executes its batches and closes
// it: code that binds itself to a thread (runtime.LockOSThread) in NewInstance stays there. Execute
// passes a batch to it and returns.
//
// A panic in any hook is logged with its stack and becomes an error of the load, the batch or the
// readiness check. The instance continues with the next batch. A panic in an author's own goroutine
// ends the process.
//
// Calls of Server go to the backend.Host of the model's Version. The wait graph assigns a request
// made in Execute, with its context, to its batch. It is cancelled when no client waits for any
// request of the batch.
//
// A Backend is opened and closed once; Complete, Start and Close of a Model follow each other. Any
// goroutine may create, use and close instances.
//
// Locks: Model.mu, Instance.mu, calls.mu and call.mu are each held alone and briefly;
// customMetrics.mu is held while the holder is called. The author's code is called with no lock
// held, except a Strategist, which is called with the scheduler's.
//
// Memory: inputs are retained from Execute to the release of their request (package execution).
// Inputs that are passed on to another model are retained until its last response. Responses belong
// to the author until they are released or dropped.
package engine
