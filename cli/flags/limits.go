package flags

import (
	"math"
	"time"
)

// limitFlags limit clients' use of the front ends. The table of limits in docs/operations.md lists
// them and modelLimitFlags.
func limitFlags() []flag {
	return []flag{
		most("client-shm-max-regions", "Maximum number of shared-memory regions registered by clients.",
			func(o *Options) *int { return &o.MaxClientRegions }),
		most("client-max-small-body-size", "Maximum size of an HTTP body other than inference, generate and load, and of a unary gRPC message other than ModelInfer and RepositoryModelLoad, in bytes.",
			func(o *Options) *int64 { return &o.ClientLimits.SmallBody }),
		most("client-max-id-size", "Maximum size of the id of an inference request, in bytes.",
			func(o *Options) *int64 { return &o.ClientLimits.RequestID }),
		most("client-max-parameters-size", "Maximum size of the names and values of all parameters of a request, in bytes.",
			func(o *Options) *int64 { return &o.ClientLimits.Parameters }),
		most("client-max-config-size", "Maximum size of the config in a load request, in bytes.",
			func(o *Options) *int64 { return &o.ClientLimits.ConfigOverride }),
		most("http-max-header-size", "Maximum size of the request line and headers of an HTTP request, in bytes.",
			func(o *Options) *int { return &o.HTTP.MaxHeaderBytes }),
		most("http-max-chunks", "Maximum number of non-empty chunks of an HTTP body.",
			func(o *Options) *int { return &o.HTTP.MaxChunks }),
		most("http-max-discard-size", "Maximum number of bytes read from the body of a rejected request, so that the client receives the response.",
			func(o *Options) *int64 { return &o.HTTP.MaxDiscardBytes }),
		most("http-max-connections", "Maximum number of HTTP connections. If exceeded, the connection that has been idle longest is closed.",
			func(o *Options) *int { return &o.HTTP.MaxConnections }),
		seconds("http-header-timeout-seconds", "Time for the headers of an HTTP request and the first 64 KiB of its body, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.HTTP.HeaderTimeout }),
		most("http-body-bytes-per-second", "Minimum average rate of the rest of the body, in bytes per second.",
			func(o *Options) *int64 { return &o.HTTP.BodyBytesPerSecond }),
		seconds("http-body-grace-seconds", "Additional time for the rest of the body, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.HTTP.BodyGrace }),
		seconds("http-write-timeout-seconds", "Time for a client to read the next MiB of its response, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.HTTP.WriteTimeout }),
		seconds("http-idle-timeout-seconds", "Time before an idle HTTP connection is closed, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.HTTP.IdleTimeout }),
		seconds("http-drain-seconds", "Time after the first signal in which each open HTTP connection may send one more request, in seconds. New connections are refused. At most half of --exit-timeout-secs.", 0,
			func(o *Options) *time.Duration { return &o.HTTP.DrainTime }),
		most("grpc-max-message-size", "Maximum size of a gRPC request, before and after decompression, in bytes.",
			func(o *Options) *int { return &o.GRPC.MaxMessageBytes }),
		most("grpc-max-header-size", "Maximum size of the metadata of a gRPC call, in bytes.",
			func(o *Options) *int { return &o.GRPC.MaxHeaderBytes }),
		most("grpc-max-connections", "Maximum number of gRPC connections. If exceeded, the connection that has been idle longest is closed.",
			func(o *Options) *int { return &o.GRPC.MaxConnections }),
		most("grpc-max-calls", "Maximum number of concurrent calls on one gRPC connection.",
			func(o *Options) *int { return &o.GRPC.MaxCalls }),
		most("grpc-max-stream-requests", "Maximum number of requests in flight on one stream.",
			func(o *Options) *int { return &o.GRPC.MaxStreamRequests }),
		most("grpc-max-stream-byte-size", "Maximum size of the waiting responses on one stream, in bytes.",
			func(o *Options) *int64 { return &o.GRPC.MaxStreamBytes }),
		seconds("grpc-stream-stall-timeout-seconds", "Time after which a stream is closed if its client does not read the responses, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.GRPC.StreamStallTimeout }),
		seconds("grpc-stream-full-timeout-seconds", "The same, if responses of a decoupled model have reached --grpc-max-stream-byte-size, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.GRPC.StreamFullTimeout }),
		seconds("grpc-read-timeout-seconds", "Time for a client to send the next 128 KiB of a request, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.GRPC.ReadTimeout }),
		seconds("grpc-write-timeout-seconds", "Time for a client to read its next response, plus the same for each MiB, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.GRPC.WriteTimeout }),
		seconds("grpc-handshake-timeout-seconds", "Time for the TLS and HTTP/2 handshakes, in seconds.", 1,
			func(o *Options) *time.Duration { return &o.GRPC.HandshakeTimeout }),
		between("grpc-stream-window-size", "Flow-control window of a gRPC call, in bytes.", 64<<10, 512<<20,
			func(o *Options) *int { return &o.GRPC.StreamWindowBytes }),
	}
}

// modelLimitFlags limit models, and requests about models.
func modelLimitFlags() []flag {
	return []flag{
		most("model-max-queued-requests", "Maximum number of queued requests of one model version.",
			func(o *Options) *int { return &o.Limits.QueuedRequests }),
		between("model-max-instances", "Maximum number of instances of one model version.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Instances }),
		between("model-max-requested-instances", "Maximum number of instances of a group in a request that changes it.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.GroupInstances }),
		most("model-max-load-files", "Maximum number of files and directories in a load request.",
			func(o *Options) *int { return &o.Limits.LoadFiles }),
		between("model-max-printed-lines", "Number of lines that a model process may print in a burst. The same limit applies to lines logged by its model.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Output.Burst }),
		between("model-printed-lines-per-second", "Number of lines per second after the burst.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Output.PerSecond }),
		between("model-max-printed-line-size", "Maximum size of a printed line, in bytes. A message of Logger may be sixteen times as long.", 1, 16<<20,
			func(o *Options) *int { return &o.Limits.Processes.Output.LineBytes }),
		between("model-max-calls", "Maximum number of concurrent calls of load_model, unload_model and is_model_ready in one process.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Calls.Most }),
		most("model-max-call-size", "Maximum total size of these calls, in bytes.",
			func(o *Options) *int64 { return &o.Limits.Processes.Calls.Bytes }),
		between("model-max-call-files", "Maximum number of files in one call of load_model.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Calls.Files }),
		between("model-max-memory-share", "Share of each kind of request memory that one model version may occupy, in percent: tensors kept after the response, outputs, waiting responses, strings and frames.", 1, 100,
			func(o *Options) *int { return &o.Limits.Processes.MemoryShare }),
	}
}
