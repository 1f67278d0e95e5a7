// Package kserve has the messages of the KServe inference protocol v2 with Triton's extensions, and
// of the model configuration.
//
// go generate makes the Go code from the .proto files. The code of the gRPC service is in package
// grpcservice, so that users of the messages do not link gRPC. The front end decodes inference
// messages without this code, in server/grpc/message.
//
// Messages are values on the Go heap. Only the package that makes a ModelConfig changes it, before
// other packages get it, so all goroutines may read it.
package kserve

//go:generate go run ./internal/generate grpc_service.proto model_config.proto
