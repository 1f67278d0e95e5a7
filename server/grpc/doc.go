// Package grpc is the front end for the KServe protocol v2 over gRPC: the services
// inference.GRPCInferenceService and grpc.health.v1.Health.
//
// In its files, as in every Go program, the name grpc is the library's; the front end
// itself is FrontEnd. A file that needs both imports this package as grpcserver.
//
//	front, err := grpc.New(cfg, server.Parts{Core: registry, Allocate: lend, Memory: account, Logging: log}, logger)
//	…
//	err = front.Listen()          // takes the port, reads the certificates
//	…
//	err = front.Run(ctx)          // serves until ctx ends, drains, returns
//
// Clients must not reach a server before its models are loaded, so Listen comes
// after that, and before that of HTTP. The Parts are the same as those of HTTP;
// the Account is shared. End ctx before the Core says "Server exiting"; unload
// the models when Run has returned or the time for requests is over, as requests may
// wait for models.
//
// An inference is not decoded by the library but by package message, which keeps the
// bytes of large tensors from being copied. The requests of a ModelStreamInfer run
// side by side; a replies.Queue puts their replies in order.
//
//	listener ── connection (accepts, counts, closes)
//	              └─ tap (charges the call)
//	              └─ handler: restricted? ── unary ─────────── one method of service.go
//	                                      ├─ modelInfer ────── message.Request ▸ Core ▸ message.Reply
//	                                      └─ modelStreamInfer ─ reader ▸ message.Request ▸ Core ▸ replies.Queue ▸ writer
//
// States: a FrontEnd is made, listens, runs and has ended, each once. While it runs it
// serves; after Leave it still does, by a second server of the library on the same socket, while the first one's connections
// end; when stopping is closed it refuses new RPCs and streams end when nothing is in flight on
// them; Run returns when active is zero, or says how many handlers a model holds.
//
// Goroutines: the library has one for each RPC, in which a handler runs, and two for each
// connection, in which buffers that a reply has lent are read and given back. A stream adds a
// reader, a writer, and one for each request in flight; these may outlive the handler.
//
// Callers: package nereid makes a FrontEnd and runs it once.
//
// Memory: what Allocate lends for a request's tensors is released before the
// reply is sent. A response is released when the transport has taken its
// bytes, which other goroutines read: they must not fault.
//
// Charges: a call is charged from its headers until its end has been written, a message before
// each piece of it is received and before it is decoded, a reply before it is encoded and until
// the transport has put it into its write buffer. All of them name the connection as their
// holder, and the end of the connection gives back the charges of replies that the library drops.
//
// Locks: listener.mu is taken alone. No lock is held while a response is released or the
// Core is called.
package grpc
