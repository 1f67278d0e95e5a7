// Package server speaks the KServe protocol v2, with Triton's extensions, over
// HTTP, and has what every front end needs: Core, through which they ask the packages
// below, the memory of requests, restrictions, header forwarding, classification, log
// settings, and the texts of what is refused. The gRPC front end is package server/grpc.
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
// The HTTP front end stands on http1, which reads and writes the connections, and on
// jsontext, which scans and writes JSON. So tensors go from the socket into the memory
// that the stubs see and back without a copy.
//
//	http1.Server ── HTTP.handle ── route ── restricted? ── type ── method ── endpoint ── http1.Reply.Send
//
// An inference goes through inferCall: the head of the body is read and its
// syntax checked (jsontext.Document), each input is decoded from the head or read from
// the body into the memory that the stubs see, Core infers, and the response is
// written from where its bytes lie. Meanwhile the request is
// watched: its context ends if the client closes its connection.
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
