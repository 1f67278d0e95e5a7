// Package server speaks the KServe protocol v2, with Triton's extensions, over
// HTTP and gRPC, and owns every status code. Both front ends ask the rooms below
// through Core.
//
// A front end is made, bound and run, in this order:
//
//	account := memory.New(memory.Config{})
//	parts := server.Parts{Core: registry, Allocate: allocate, Open: open, Memory: account, Logging: settings}
//	h, err := server.NewHTTP(server.HTTPConfig{Port: 8000}, parts, log)
//	err = h.Listen()                  // a port in use is syscall.EADDRINUSE
//	err = h.Run(ctx)                  // until ctx ends and requests in flight have ended
//
//	m, err := server.NewMetricsHTTP(server.HTTPConfig{Port: 8002}, metricsHandler, log)
//	err = m.Listen()
//	err = m.Run(ctx)
//
// The HTTP front end reads and writes its connections itself, one goroutine
// each, so that tensors go from the socket into the memory that the stubs see
// and back without a copy, and so that paths and headers stay as they were
// spelled.
//
//	HTTP.Run ── connServer (accepts, counts, refuses, ends)
//	              └─ conn: readHead ── request.parse ── handle ── bodyReader.discard ─┐
//	                   ▲                                  │                           │
//	                   └──────────────────────────────────┼───────────────────────────┘
//	                     route ── restricted? ── type ── method ── endpoint ── reply.send
//
// An inference goes through inferCall: the head of the body is read and its
// syntax checked (jsontext.Document), each input is decoded from the head or read from
// the body into the memory that the stubs see, Core infers, and the response is
// written from where its bytes lie. Meanwhile a departure looks whether the
// client closes its connection, and then ends the request's context.
//
// Ownership: an inferCall owns the memory of its inputs until Core.Infer has
// returned, and the one response until its last byte is written. A body of at
// most smallBody bytes is one block of the Go heap, which its tensors keep; a
// larger tensor has a block of the Allocator, or of the Opener, which becomes real
// as bytes come; JSON texts of larger requests lie in memory that the next request
// will use, so nothing may keep a part of them.
//
// Trust: a client may send anything, at any speed. Memory is charged to an Account
// before it is taken, lengths are compared before anything is allocated for
// them, and every wait for a client has a deadline that moves on only while the
// client does.
package server
