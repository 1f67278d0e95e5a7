// Package engine runs backends that are written against package sdk. It calls the author's hooks in their order, and makes
// Execute([]*Request) error the asynchronous contract of package backend: in a server (package linked) as in the process of a plugin.
//
//	Open ─▶ Backend ─▶ Model ─▶ Complete ─▶ Start ─▶ Instance ─▶ Execute … ─▶ Instance.Close ─▶ Model.Close ─▶ Backend.Close
//	New                  NewModel (Complete, or Start) NewInstance
//
// Each Instance has a goroutine, which makes the author's instance, executes its batches and closes it: code that binds itself to a
// thread (runtime.LockOSThread) in NewInstance stays there. Execute hands a batch to it and returns.
//
// A panic in any hook is logged with its stack and becomes an error: of the load, the batch or the question. The instance goes on with the
// next batch. An author's own goroutines are the author's: a panic there ends the process.
//
// What the author asks of the server (Server) goes to the backend.Host of the model's Version. A request that is made in Execute, with
// its context, is known to the wait graph as that of its batch, and cancelled when no client waits for any of the batch.
//
// Callers: a Backend is opened and closed once; Complete, Start and Close of a Model follow each other. Instances may be made, used and closed by any
// goroutine.
//
// Locks: Model.mu, Instance.mu, calls.mu and call.mu are each held alone and for a few instructions; customMetrics.mu is held while the holder is
// called. Nothing of the author's is called with a lock, but a Strategist under the scheduler's.
//
// Memory: inputs are retained from Execute to the release of their request (package execution). Inputs that a model passes on to another
// are retained until the last response of that; responses are the author's until it releases them, or drops them.
package engine
