// Package body reads the bodies of HTTP requests into memory that is charged as the bytes
// arrive: a whole body (Gatherer.Whole; Gatherer.Small where
// little is needed; JSON), or a part of a body that is
// as long as the client has announced (Gatherer.Gather). It also has the texts with which
// bodies are refused, and makes parameters of the headers that are forwarded.
//
//	http1.Request ── Reader ── Gatherer.Gather ─▶ Go heap, or a block of the Opener
//
// State: a Gatherer does not change after it has been made, and all requests of a front end
// share it. A Reader belongs to the goroutine of its connection. There is no lock.
//
// Callers: package rest for the endpoints whose body is JSON, packages inference and
// generate for the bodies of inferences, package openai for its own.
//
// Memory: a length that a client announces takes a block, but the block becomes real, and
// is charged, in steps of a few times the bytes that have arrived. A body of unknown length
// moves to a block eight times as large when the one before is full. The caller of Gather
// owns the block; after an error or a panic there is none. Bytes on the Go heap are charged
// to the Charge that the caller settles.
package body
