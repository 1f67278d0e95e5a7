// Package generate is Triton's generate extension. A flat JSON object becomes a request: its
// members are inputs and parameters, by the model's own names. Each response becomes a flat JSON
// object, alone or as an event of a stream (server-sent events, WHATWG HTML §9.2). Package rest
// owns the routes, statuses and replies.
//
//	Codec.Read ── Request ── server.InferOn ─┬─ server.Single.Take ─────────── Request.Append
//	                                         └─ Start ── Stream.Next ── Request.AppendEvent
//
// A Request is read, executed once, writes its responses, and is released. A Stream is started,
// returns responses until the last, and is closed; later responses are released at once.
//
// Goroutines: a Request and a Single belong to the goroutine of the connection. A Stream has two:
// one waits in InferOn, the connection's calls Next. The goroutine that reads the model's responses
// fills the queue between them. A model that is faster than its client fills the window of its
// request (infer.Response.Slot) and waits; nothing else bounds a queue. queue.mu is held for a few
// instructions, and nothing is released under it.
//
// Memory: a Request owns its inputs until Release. A Stream owns the request until Close returns,
// and its responses until Next returns them. Append and AppendEvent write into the caller's buffer
// and keep nothing of a response.
//
// Trust: the text of a body is bounded and charged before it is read, and so are its decoded
// values.
package generate
