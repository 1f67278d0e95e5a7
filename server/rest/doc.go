// Package rest is the HTTP front end: the endpoints of the KServe protocol v2 with
// Triton's extensions, over http1, in the JSON of jsontext. FrontEnd serves them, Metrics
// serves the metrics on a port of their own. It owns the HTTP status of every error.
//
//	http1.Server ── FrontEnd.handle ── route ── restricted? ── type ── method ── endpoint ── http1.Reply.Send
//
// A front end is made, bound and run, in this order:
//
//	front, err := rest.New(rest.Config{Port: 8000}, parts, log)
//	err = front.Listen()                  // a port in use is syscall.EADDRINUSE
//	err = front.Run(ctx)                  // until ctx ends and requests in flight have ended
//
// An inference goes through inferCall: the head of the body is read and its syntax
// checked (jsontext.Document), each input is decoded from the head or read from the body
// into the memory that the stubs see, the Target that server.Core found infers
// (server.InferOn), and the response is written
// from where its bytes lie. Meanwhile the request is watched: its context ends if the
// client closes its connection.
//
// Concurrency: each request is served by the goroutine of its connection. Requests share
// the pools of calls and of codecs, and nothing else of the FrontEnd changes after New.
// There is no lock.
//
// Ownership: an inferCall owns the memory of its inputs until the Target's Infer has
// returned, and the one response until its last byte is written. A body of at most
// smallBody bytes is one block of the Go heap, which its tensors keep; a larger tensor
// has a block of the Allocator, or of the Opener, which becomes real as bytes come. JSON
// texts of larger requests lie in memory that the next request will use, so nothing may
// keep a part of them.
//
// Trust: a client may send anything. Memory is charged to the account before it is taken,
// and lengths are compared before anything is allocated for them.
package rest
