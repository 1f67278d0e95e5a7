// Package kserve is the public contract: the messages of the KServe inference
// protocol v2 with Triton's extensions, and of the model configuration.
//
// The .proto files are the source; go generate makes the Go code of them.
package kserve

//go:generate go run ./internal/generate grpc_service.proto model_config.proto
