// Package rest is the HTTP front end: the endpoints of the KServe protocol v2 with Triton's
// extensions, over http1, with the JSON of jsontext. Endpoints serve requests, and a FrontEnd
// listens for them. Another FrontEnd serves the metrics on a separate port. The package owns the
// routes, the HTTP status of every error (httpStatus) and the content type of every reply.
//
//	http1.Server ── Endpoints.Serve ── route ── restricted? ── type ── method ── endpoint ── http1.Reply.Send
//
// A front end is used in this order:
//
//	front, err := rest.New(rest.Config{Port: 8000}, parts, log)
//	err = front.Listen()                  // a port in use is syscall.EADDRINUSE
//	err = front.Run(ctx)                  // until ctx ends and requests in flight have ended
//
// Package inference decodes requests and encodes responses, package body reads bodies. Between them
// Endpoints.Infer executes the request on the Target that server.Core has found. Meanwhile the
// request is watched: its context ends if the client disconnects.
//
// The reply of a generation can report the load of the model's cache to load balancers
// (reportLoad), with metrics from Parts.Samples.
//
// Requests share the pools of inference.Codec. Nothing else of Endpoints changes after New.
//
// Memory: an endpoint releases what inference.Request and body.Gatherer hold before it returns,
// after a panic too. Replies other than an inference's are assembled on the Go heap.
package rest
