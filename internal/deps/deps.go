// Package deps keeps modules in go.mod while rooms are being built.
package deps

import (
	_ "github.com/bufbuild/protocompile"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rs/zerolog"
	_ "github.com/spf13/pflag"
	_ "github.com/vmihailenco/msgpack/v5"
	_ "golang.org/x/sys/unix"
	_ "google.golang.org/grpc"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/protobuf/encoding/prototext"
	_ "google.golang.org/protobuf/types/pluginpb"
)
