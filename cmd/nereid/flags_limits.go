package main

import (
	"fmt"
	"strconv"
	"time"
)

// limitFlags say how much clients may ask of the front ends. docs/operations.md
// has them in its table of limits.
func limitFlags() []flag {
	d := defaults(func(string) string { return "" })
	return []flag{
		most(d, "client-shm-max-regions", "Regions of shared memory that clients have registered.",
			func(o *Options) *int { return &o.MaxClientRegions }),
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
		seconds(d, "grpc-read-timeout-seconds", "Seconds in which a client must send the next 128 KiB of a request that it has begun.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.ReadTimeout }),
		seconds(d, "grpc-write-timeout-seconds", "Seconds in which a client must take an answer whose bytes lie in shared memory, and "+
			"as many for each MiB.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.WriteTimeout }),
		seconds(d, "grpc-handshake-timeout-seconds", "Seconds for TLS and the start of HTTP/2.",
			func(o *Options) *time.Duration { return &o.GRPC.Limits.HandshakeTimeout }),
	}
}

// most makes the flag of a number, 1 or more. The help ends with the default.
func most[T int | int64](d *Options, name, help string, field func(*Options) *T) flag {
	return flag{name, "<integer>", fmt.Sprintf("%s Default: %d.", help, *field(d)), func(p *parser, text string) error {
		n, err := parseInt64(text)
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
		n, err := parseInt(text)
		switch {
		case err != nil:
			return err
		case n < least || n > longestSeconds:
			return fmt.Errorf("it is %d seconds, want %d to %d", n, least, longestSeconds)
		}
		*field(p.o) = time.Duration(n) * time.Second
		return nil
	}
}
