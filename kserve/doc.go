// Package kserve is the public contract: the messages of the KServe inference
// protocol v2 with Triton's extensions, and of the model configuration.
//
// The .proto files are the source; go generate makes the Go code of them: of the messages here, and
// of the gRPC service in grpcservice, so that users of the messages do not link gRPC. What front
// ends decode on the way of a request they read without this code, in server/grpc/message.
//
// States and locks: none. Messages are values: a ModelConfig is changed by the package
// that has made it and not after it has been handed on, so all goroutines may read it.
// Their bytes are on the Go heap.
package kserve

//go:generate go run ./internal/generate grpc_service.proto model_config.proto
