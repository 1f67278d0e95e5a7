// Package body reads the bodies of HTTP requests into memory that is charged as the bytes arrive: a
// whole body (Gatherer.Whole; Gatherer.Small for small ones; JSON), or an announced part of a body
// (Gatherer.Gather). It also has the error texts of rejected bodies, and turns forwarded headers
// into parameters.
//
//	http1.Request ── Reader ── Gatherer.Gather ─▶ Go heap, or a block of the Opener
//
// A Gatherer does not change, and all requests of a front end share it. A Reader belongs to the
// goroutine of its connection.
//
// Memory: an announced length reserves a block. Its pages are allocated, and charged, in steps of a
// few times the bytes that have arrived. A body of unknown length moves to a block eight times as
// large when its block is full. The caller of Gather owns the block; after an error or a panic no
// block remains. Bytes on the Go heap are charged to the Charge that the caller settles.
package body
