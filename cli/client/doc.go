// Package client is the client of a running server that commands share. It uses HTTP, or gRPC where
// the user wants it, over TCP, TLS or a Unix socket.
//
//	ParseAddress ── Address ─┬─ Endpoint ── Do, Ask, Read ── HTTP
//	                         │      └── Invoke ── calls other than inference, as JSON
//	                         ├─ GRPC ── a connection
//	                         └─ Instead ── the error for an address of another endpoint
//
// An Endpoint is a grpc.ClientConnInterface, so the generated client of package grpcservice makes
// its calls over either protocol. A Request becomes the message or the JSON of an inference.
//
// Any number of goroutines may use an Endpoint. Replies are limited to MaxReply bytes.
package client
