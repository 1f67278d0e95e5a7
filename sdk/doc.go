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
// If Execute returns an error, the backend has taken no request, and all of them get that error. If
// it returns nil, the backend has taken all requests: it must give each exactly one final response
// or final flag, and release each once, now or later. The server logs each violation of these rules
// by name and limits its effect.
//
// One goroutine per instance calls its hooks, except Ready. Any goroutine may send responses. A
// backend waits for its own goroutines in Close; a panic in one of them ends the process.
//
// Memory: bytes of inputs are valid until the release of their request and must not be written.
// Bytes of outputs belong to the backend until Send.
package sdk
