// Package grpc is the front end for the KServe protocol v2 over gRPC: the services
// inference.GRPCInferenceService and grpc.health.v1.Health.
//
// In this package's files the name grpc means the library google.golang.org/grpc. A file that
// needs both imports this package as grpcserver.
//
//	front, err := grpc.New(cfg, server.Parts{Core: registry, Allocate: lend, Memory: account, Logging: log}, logger)
//	…
//	err = front.Listen()          // binds the port, reads the certificates
//	…
//	err = front.Run(ctx)          // serves until ctx ends, drains, returns
//
// Clients must not reach a server before its models are loaded, so the caller loads them before
// Listen, and listens here before HTTP does. Both front ends use the same Parts and share the
// Account. End ctx before the Core says "Server exiting". Unload the models after Run has returned
// or after the exit timeout, because requests may wait for models.
//
// Package message decodes inferences instead of the library, so that the bytes of large tensors
// are not copied. The requests of a ModelStreamInfer run concurrently; a replies.Queue orders
// their replies.
//
//	listener ── connection (accepts, counts, closes)
//	              └─ tap (charges the call)
//	              └─ handler: restricted? ── unary ─────────── one method of service.go
//	                                      ├─ modelInfer ────── message.Request ▸ Core ▸ message.Reply
//	                                      └─ modelStreamInfer ─ reader ▸ message.Request ▸ Core ▸ replies.Queue ▸ writer
//
// States: a FrontEnd listens once and runs once. After Leave a second server of the library
// serves the same socket while the first one's connections end. When stopping is closed, new RPCs
// are rejected, and a stream ends as soon as it has nothing in flight. Run returns when active is
// zero, or reports how many handlers a model still blocks.
//
// Goroutines: the library runs each RPC's handler in a goroutine, and two more goroutines for
// each connection, which read and release the buffers that a reply lends. A stream adds a
// reader, a writer, and one goroutine for each request in flight; these may outlive the handler.
//
// Memory: memory from Allocate for a request's tensors is released before the reply is sent. A
// response is released when the transport has copied its bytes. Goroutines of the library read
// them, so they must not fault.
//
// Charges: a call is charged from its headers until its end has been written; a message before
// each piece of it is received and before it is decoded; a reply before it is encoded, until
// the transport has copied it into its write buffer. The connection is the holder of these
// charges, and its end gives back the charges of replies that the library drops.
//
// Locks: listener.mu is never held together with another lock. No lock is held while a response
// is released or the Core is called.
package grpc
