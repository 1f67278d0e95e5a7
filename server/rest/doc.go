// Package rest is the HTTP front end: the endpoints of the KServe protocol v2 with
// Triton's extensions, over http1, in the JSON of jsontext. Endpoints serve them, a FrontEnd
// listens for them, and another one serves the metrics on a port of their own. It owns the routes, the HTTP status of every
// error (httpStatus makes it of the code) and the content type of every reply.
//
//	http1.Server ── Endpoints.Serve ── route ── restricted? ── type ── method ── endpoint ── http1.Reply.Send
//
// A front end is made, bound and run, in this order:
//
//	front, err := rest.New(rest.Config{Port: 8000}, parts, log)
//	err = front.Listen()                  // a port in use is syscall.EADDRINUSE
//	err = front.Run(ctx)                  // until ctx ends and requests in flight have ended
//
// Package inference has the form of requests and responses, package body the reading of
// bodies. Between them Endpoints.Infer has the Target that server.Core found execute the request.
// Meanwhile the request is watched: its context ends if the client closes its connection.
//
// A generation's reply can tell load balancers how full the model's cache is (reportLoad).
// Package metrics has the figures, which Parts.Samples reads.
//
// Callers: package nereid, which makes each FrontEnd and runs it once.
//
// Concurrency: each request is served by the goroutine of its connection. Requests share
// the pools of inference.Codec, and nothing else of Endpoints changes after New. There is
// no lock.
//
// Memory: an endpoint releases what inference.Request and body.Gatherer hold before it
// returns, after a panic too. A reply that is not an inference's is put together on the Go
// heap.
package rest
