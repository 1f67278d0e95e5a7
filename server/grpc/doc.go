// Package grpc is the front end for the KServe protocol v2 over gRPC: the services
// inference.GRPCInferenceService and grpc.health.v1.Health.
//
// In its files, as in every Go program, the name grpc is the library's; the front end
// itself is FrontEnd. Who needs both names this package grpcserver.
//
//	front, err := grpc.New(cfg, server.Parts{Core: registry, Allocate: lend, Memory: account, Logging: log}, logger)
//	…
//	err = front.Listen()          // takes the port, reads the certificates
//	…
//	err = front.Run(ctx)          // serves until ctx ends, drains, returns
//
// Clients must not reach a server before its models are loaded, so Listen comes
// after that, and before that of HTTP. The Parts are the same as those of HTTP;
// the Account is shared. End ctx when the Core has begun to say "Server exiting",
// or just before, and close the models when Run has returned.
//
// An inference is not decoded by the library. A receiver takes its message off
// the transport in pieces, message.decode puts the bytes of large tensors into
// memory of the Allocator as they arrive, call.build makes a request of it in the
// order of Triton's checks, and answer.encode writes all but the bytes of large
// outputs, which are lent to the transport. The requests of a ModelStreamInfer run
// side by side; a queue puts their answers in order.
//
//	listener ── connection (accepts, counts, closes)
//	              └─ handler: restricted? ── unary ─────────── one method of service.go
//	                                      ├─ modelInfer ────── receiver ▸ call ▸ Core ▸ answer
//	                                      └─ modelStreamInfer ─ reader ▸ call ▸ Core ▸ queue ▸ writer
//
// Memory: what Allocate lends for a request's tensors is released before the
// call is answered. A response is released when the transport has taken its
// bytes, which other goroutines read: they must not fault.
//
// Locks: streams.mu before queue.mu; listener.mu and activity.mu are taken alone. No
// lock is held while a response is released or the Core is called.
package grpc
