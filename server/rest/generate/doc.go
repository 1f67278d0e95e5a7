// Package generate is Triton's generate extension: a flat JSON object becomes a request,
// its members inputs and parameters by the model's own names, and each response becomes a
// flat JSON object, alone or as an event of a stream (server-sent events, WHATWG HTML
// §9.2). Routes, statuses and the HTTP reply are package rest's.
//
//	Codec.Read ── Request ── server.InferOn ─┬─ server.Single.Take ─────────── Request.Append
//	                                         └─ Start ── Stream.Next ── Request.AppendEvent
//
// States: a Request is read, executed once, writes its responses, and is released. A Stream
// is started, gives responses until the last, and is closed; responses that come later are
// released at once.
//
// Goroutines: a Request and a Single belong to the goroutine of the connection. A Stream
// has two: one waits in InferOn, that of the connection calls Next. The goroutine that
// reads the model's responses fills the queue between them. A model that is faster
// than its client fills the window of its request (infer.Response.Slot) and waits; nothing
// else bounds a queue. queue.mu is held for a few instructions, and nothing is released
// under it.
//
// Memory: a Request owns its inputs until Release. A Stream owns the request until Close
// returns, and its responses until Next hands them over. What Append and AppendEvent write is the caller's buffer; of a response they
// keep nothing.
//
// Trust: the text of a body is bounded and charged before it is read, and so is what it
// decodes to.
package generate
