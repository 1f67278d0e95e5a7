// Package sdk is the interface for backends in Go. A backend executes models, as Triton's C++
// backends do, with the same hooks in the same order and the same rules of ownership.
// docs/backends.md describes them.
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
// If Execute returns an error it has taken no request, and all of them get that error. If it
// returns nil it has taken all: each gets exactly one final response, or flag, and is released
// once, now or later. The server logs violations by name and contains them.
//
// One goroutine per instance calls its hooks, except Ready. Requests may be answered by any
// goroutine. A backend waits for its own goroutines in Close; a panic in one of them ends the
// process.
//
// Memory: bytes of inputs are valid until the release of their request and must not be written.
// Bytes of outputs belong to the backend until Send.
package sdk
