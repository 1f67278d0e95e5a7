package flags

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// limitFlags say how much clients may ask of the front ends. docs/operations.md
// has them, and those of modelLimitFlags, in its table of limits.
func limitFlags() []flag {
	d := Defaults(func(string) string { return "" })
	return []flag{
		most(d, "client-shm-max-regions", "Regions of shared memory that clients have registered.",
			func(o *Options) *int { return &o.MaxClientRegions }),
		most(d, "client-max-small-body-size", "Bytes of the body of an HTTP request other than inference, generate and load, and of a "+
			"unary gRPC message other than ModelInfer and RepositoryModelLoad.",
			func(o *Options) *int64 { return &o.ClientLimits.SmallBody }),
		most(d, "client-max-id-size", "Bytes of the id of an inference request.",
			func(o *Options) *int64 { return &o.ClientLimits.RequestID }),
		most(d, "client-max-parameters-size", "Bytes of the names and values of all parameters of a request.",
			func(o *Options) *int64 { return &o.ClientLimits.Parameters }),
		most(d, "client-max-config-size", "Bytes of the config that comes with a request to load a model.",
			func(o *Options) *int64 { return &o.ClientLimits.ConfigOverride }),
		most(d, "http-max-header-size", "Bytes of the request line and headers of an HTTP request.",
			func(o *Options) *int { return &o.HTTP.Limits.MaxHeaderBytes }),
		most(d, "http-max-chunks", "Chunks of the body of an HTTP request that are not empty.",
			func(o *Options) *int { return &o.HTTP.Limits.MaxChunks }),
		most(d, "http-max-discard-size", "Bytes that are read of the body of a request which is refused, so that its client sees why.",
			func(o *Options) *int64 { return &o.HTTP.Limits.MaxDiscardBytes }),
		most(d, "http-max-connections", "HTTP connections at once. For one more, the one that has been idle for longest is closed.",
			func(o *Options) *int { return &o.HTTP.Limits.MaxConnections }),
		seconds(d, "http-header-timeout-seconds", "Seconds for the headers of an HTTP request and the first 64 KiB of its body.",
			func(o *Options) *time.Duration { return &o.HTTP.Limits.HeaderTimeout }),
		most(d, "http-body-bytes-per-second", "How fast the rest of the body must come on average.",
			func(o *Options) *int64 { return &o.HTTP.Limits.BodyBytesPerSecond }),
		seconds(d, "http-body-grace-seconds", "Seconds that it may take besides.",
			func(o *Options) *time.Duration { return &o.HTTP.Limits.BodyGrace }),
		seconds(d, "http-write-timeout-seconds", "Seconds in which a client must take the next MiB of its answer.",
			func(o *Options) *time.Duration { return &o.HTTP.Limits.WriteTimeout }),
		seconds(d, "http-idle-timeout-seconds", "Seconds after which an HTTP connection without requests is closed.",
			func(o *Options) *time.Duration { return &o.HTTP.Limits.IdleTimeout }),
		{"http-drain-seconds", "<integer>", "Seconds after the first signal in which HTTP connections that exist are served, each for " +
			"one more request; no new ones are accepted. At most half of --exit-timeout-secs. Default: " + inSeconds(d.HTTP.Limits.DrainTime) + ".",
			setSeconds(0, func(o *Options) *time.Duration { return &o.HTTP.Limits.DrainTime })},
		most(d, "grpc-max-message-size", "Bytes of a gRPC request, also when it is decompressed.",
			func(o *Options) *int { return &o.GRPC.Limits.MaxMessageBytes }),
		most(d, "grpc-max-header-size", "Bytes of the metadata of a gRPC call.",
			func(o *Options) *int { return &o.GRPC.Limits.MaxHeaderBytes }),
		most(d, "grpc-max-connections", "gRPC connections at once. For one more, the one that has been idle for longest is closed.",
			func(o *Options) *int { return &o.GRPC.Limits.MaxConnections }),
		most(d, "grpc-max-calls", "Calls at once on one gRPC connection.",
			func(o *Options) *int { return &o.GRPC.Limits.MaxCalls }),
		most(d, "grpc-max-stream-requests", "Requests in flight on one stream.",
			func(o *Options) *int { return &o.GRPC.Limits.MaxStreamRequests }),
		most(d, "grpc-max-stream-byte-size", "Bytes of answers that may wait on one stream for its client.",
			func(o *Options) *int64 { return &o.GRPC.Limits.MaxStreamBytes }),
		seconds(d, "grpc-stream-stall-timeout-seconds", "Seconds after which a stream ends whose client does not read while answers wait.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.StreamStallTimeout }),
		seconds(d, "grpc-stream-full-timeout-seconds", "Seconds after which a stream ends whose client does not read while as many bytes "+
			"of a decoupled model wait as may.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.StreamFullTimeout }),
		seconds(d, "grpc-read-timeout-seconds", "Seconds in which a client must send the next 128 KiB of a request that it has begun.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.ReadTimeout }),
		seconds(d, "grpc-write-timeout-seconds", "Seconds in which a client must take some of the answers that wait for it, and as many for "+
			"each MiB.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.WriteTimeout }),
		seconds(d, "grpc-handshake-timeout-seconds", "Seconds for TLS and the start of HTTP/2.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.HandshakeTimeout }),
		between(d, "grpc-stream-window-size", "Bytes that a client may send of a gRPC call before the server has read them.", 64<<10, 512<<20,
			func(o *Options) *int { return &o.GRPC.Limits.StreamWindowBytes }),
	}
}

// modelLimitFlags say how much models, and requests about them, may ask.
func modelLimitFlags() []flag {
	d := Defaults(func(string) string { return "" })
	return []flag{
		most(d, "model-max-queued-requests", "Requests that may wait for one version of a model.",
			func(o *Options) *int { return &o.Limits.QueuedRequests }),
		between(d, "model-max-instances", "Instances that one version of a model may have.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Instances }),
		between(d, "model-max-requested-instances", "Instances that a request may give an instance group.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.GroupInstances }),
		most(d, "model-max-load-files", "Files and directories that may come with a request to load a model.",
			func(o *Options) *int { return &o.Limits.LoadFiles }),
		between(d, "model-max-printed-lines", "Lines that a process of a model may print at once, and as many that its model logs.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Output.Burst }),
		between(d, "model-printed-lines-per-second", "Lines that it may print after that in each second.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Output.PerSecond }),
		between(d, "model-max-printed-line-size", "Bytes that are passed on of a printed line, and a sixteenth of those of a message of Logger.", 1, 16<<20,
			func(o *Options) *int { return &o.Limits.Processes.Output.LineBytes }),
		between(d, "model-max-calls", "Calls of load_model, unload_model and is_model_ready under way in one process.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Calls.Most }),
		most(d, "model-max-call-size", "Bytes of these calls together.",
			func(o *Options) *int64 { return &o.Limits.Processes.Calls.Bytes }),
		between(d, "model-max-call-files", "Files of one call of load_model.", 1, math.MaxInt32,
			func(o *Options) *int { return &o.Limits.Processes.Calls.Files }),
		between(d, "model-max-memory-share", "Percent of each kind of the memory for requests that one version of a model may have the server keep: of tensors "+
			"that it keeps after its responses, of responses that wait, of strings and frames.", 1, 100,
			func(o *Options) *int { return &o.Limits.Processes.MemoryShare }),
	}
}

// between makes the flag of a number within bounds.
func between(d *Options, name, help string, least, most int, field func(*Options) *int) flag {
	return flag{name, "<integer>", fmt.Sprintf("%s Default: %d.", help, *field(d)), func(p *parser, text string) error {
		n, err := parseWhole(text)
		if err != nil {
			return err
		}
		if n < int64(least) || n > int64(most) {
			return fmt.Errorf("--%s must be %d to %d", name, least, most)
		}
		*field(p.o) = int(n)
		return nil
	}}
}

// most makes the flag of a number, 1 or more. The help ends with the default.
func most[T int | int64](d *Options, name, help string, field func(*Options) *T) flag {
	return flag{name, "<integer>", fmt.Sprintf("%s Default: %d.", help, *field(d)), func(p *parser, text string) error {
		n, err := parseWhole(text)
		if err != nil {
			return err
		}
		if T(n) < 1 || int64(T(n)) != n {
			return fmt.Errorf("--%s must be greater than 0", name)
		}
		*field(p.o) = T(n)
		return nil
	}}
}

// seconds makes the flag of a time, 1 s or more.
func seconds(d *Options, name, help string, field func(*Options) *time.Duration) flag {
	return flag{name, "<integer>", help + " Default: " + inSeconds(*field(d)) + ".", setSeconds(1, field)}
}

func inSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// longestSeconds is a year: times that are added up stay times.
const longestSeconds = 366 * 24 * 60 * 60

func setSeconds(least int, field func(*Options) *time.Duration) func(*parser, string) error {
	return func(p *parser, text string) error {
		n, err := parseWhole(text)
		switch {
		case err != nil:
			return err
		case n < int64(least) || n > longestSeconds:
			return fmt.Errorf("it is %d seconds, want %d to %d", n, least, longestSeconds)
		}
		*field(p.o) = time.Duration(n) * time.Second
		return nil
	}
}
