// Package generate is Triton's generate extension: a flat JSON object becomes a request,
// its members inputs and parameters by the model's own names, and each response becomes a
// flat JSON object, alone or as an event of a stream (server-sent events, WHATWG HTML
// §9.2). Routes, statuses and the HTTP reply are package rest's.
//
//	Codec.Read ── Request ── server.InferOn ─┬─ server.Single.Take ─────────── Request.Append
//	                                         └─ Queue.Add … Queue.End ─ Queue.Next ─ Request.AppendEvent
//
// States: a Request is read, executed once, writes its responses, and is released. A Queue
// is open until End, or until Close: then whatever is still added is released at once.
//
// Goroutines: a Request and a Single belong to the goroutine of the connection. A stream
// has two: one waits in InferOn and adds to the Queue, by way of the goroutine that reads
// the model's responses, and that of the connection takes from it. A model that is faster
// than its client fills the window of its request (infer.Response.Slot) and waits; nothing
// else bounds a Queue. Queue.mu is held for a few instructions, and nothing is released
// under it.
//
// Memory: a Request owns its inputs until Release. A Queue owns its responses, Next hands
// them over. What Append and AppendEvent write is the caller's buffer; of a response they
// keep nothing.
//
// Trust: the text of a body is bounded and charged before it is read, and so is what it
// decodes to.
package generate
