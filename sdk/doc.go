// Package sdk is what authors of backends in Go write against. A backend executes models, as Triton's C++ backends do, with the same
// hooks in the same order and the same rules of ownership; docs/backends.md tells them, and how a backend is run.
//
//	New ─▶ Backend ─▶ NewModel ─▶ NewInstance ─▶ Execute … ─▶ Instance.Close ─▶ Model.Close ─▶ Backend.Close
//
// An instance gets batches of requests, one at a time:
//
//	Request ──Input──▶ bytes, read only
//	   │
//	   ├─ NewResponse ─▶ Response ──Output──▶ bytes to be filled in ──Send──▶ client
//	   ├─ Factory ─────▶ ResponseFactory, which outlives the request
//	   └─ Release
//
// Execute that returns an error has taken nothing, and all of its requests get that error. If it returns nil it has taken all: each gets exactly one
// final response, or flag, and is released once, now or later. What breaks that is named in the server's log, and contained.
//
// Who may call what: the hooks of one instance are called by one goroutine, that of the instance, but for Ready. Requests may be answered by
// any goroutine. Goroutines that a backend starts are its own: it waits for them in Close, and a panic in one ends the process.
//
// Memory: bytes of inputs are valid until the release of their request, and never written. Bytes of outputs are the backend's until Send. The
// package keeps nothing itself; package engine runs what is written against it.
package sdk
