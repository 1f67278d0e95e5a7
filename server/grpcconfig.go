package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// GRPCConfig says how the gRPC front end serves. The zero value serves on port
// 8001 of all addresses, without encryption.
type GRPCConfig struct {
	// Address is what to listen on, default 0.0.0.0, and Port the port, default
	// 8001; a negative one lets the system choose. With ReusePort other
	// processes may listen on the same port.
	Address   string
	Port      int
	ReusePort bool

	// Name, Version and Extensions are the server's metadata.
	Name       string // default "triton"
	Version    string
	Extensions []string // default: what this server can do

	// Allocator lends the memory for tensors of more than 4 KiB; nil is the Go
	// heap. ZeroCopy tells whether the transport's own goroutines may read a
	// response's memory, where a fault would end the server; nil says no, and
	// such bytes are copied first.
	Allocator Allocator
	ZeroCopy  func(infer.Memory) bool
	// Log is what LogSettings reads and changes; nil answers UNIMPLEMENTED.
	Log GRPCLog

	// Restrictions close groups of calls to clients without a key.
	Restrictions []GRPCRestriction
	// ForwardHeaders selects metadata that becomes parameters of requests;
	// empty forwards none.
	ForwardHeaders string
	// Compression of the answers to ModelInfer and ModelStreamInfer, default
	// GRPCCompressionNone.
	Compression string

	TLS GRPCTLS

	KeepaliveTime          time.Duration // between pings to an idle client, default 2 h
	KeepaliveTimeout       time.Duration // until a ping must be answered, default 20 s
	KeepalivePermitWithout bool          // clients may ping without calls
	KeepaliveMinInterval   time.Duration // between the pings of a client, default 5 min
	MaxConnectionAge       time.Duration // default endless
	MaxConnectionAgeGrace  time.Duration // default endless
	HandshakeTimeout       time.Duration // for TLS and the start of HTTP/2, default 20 s
	MaxConnections         int           // default 16384; more are closed as they come
	MaxStreams             uint32        // calls at once on one connection, default 4096
	MaxHeaderBytes         uint32        // of one call, default 64 KiB
	MaxMessageBytes        int           // default and at most 2^31-1
	MaxMessageMemory       int64         // Go heap for messages in progress, default 1 GiB
	MaxStreamRequests      int           // in flight on one ModelStreamInfer, default 4096
	MaxStreamBytes         int64         // of answers waiting on one ModelStreamInfer, default 64 MiB
	MaxStreamResponses     int           // waiting per request (--grpc-max-response-pool-size), default endless
	StreamStallTimeout     time.Duration // how long a model waits for a client that does not read, default 30 s
	WindowBytes            int32         // flow control window of a call, default 4 MiB
	ConnectionWindowBytes  int32         // flow control window of a connection, default 16 MiB
	ReadBufferBytes        int           // per connection while it is read from, default 128 KiB
	WriteBufferBytes       int           // per connection while it is written to, default 128 KiB
	ExitTimeout            time.Duration // for what is in flight at shutdown, default 30 s, negative is none
}

// GRPCTLS says how connections are encrypted. The files are PEM.
type GRPCTLS struct {
	Enabled  bool
	CertFile string
	KeyFile  string
	RootFile string // whose clients are accepted, with Mutual
	Mutual   bool   // clients must show a certificate
}

// GRPCLog holds the settings of the server's log.
type GRPCLog interface {
	Settings() GRPCLogSettings
	// Change takes new settings over. File is never changed.
	Change(GRPCLogSettings)
}

// GRPCLogSettings are the settings of the server's log.
type GRPCLogSettings struct {
	File                 string
	Info, Warning, Error bool
	Verbose              uint32
	Format               string // default or ISO8601
}

// withDefaults returns c with the defaults filled in.
func (c GRPCConfig) withDefaults() GRPCConfig {
	c.Address = cmp.Or(c.Address, "0.0.0.0")
	c.Port = cmp.Or(c.Port, 8001)
	c.Name = cmp.Or(c.Name, "triton")
	if c.Extensions == nil {
		c.Extensions = []string{
			"classification", "sequence", "model_repository", "model_repository(unload_dependents)",
			"schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory",
			"binary_tensor_data", "parameters", "statistics", "trace", "logging",
		}
	}
	c.Compression = cmp.Or(c.Compression, GRPCCompressionNone)
	c.KeepaliveTime = cmp.Or(c.KeepaliveTime, 2*time.Hour)
	c.KeepaliveTimeout = cmp.Or(c.KeepaliveTimeout, 20*time.Second)
	c.KeepaliveMinInterval = cmp.Or(c.KeepaliveMinInterval, 5*time.Minute)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 20*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, 16384)
	c.MaxStreams = cmp.Or(c.MaxStreams, 4096)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 64<<10)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, math.MaxInt32)
	c.MaxMessageMemory = cmp.Or(c.MaxMessageMemory, 1<<30)
	c.MaxStreamRequests = cmp.Or(c.MaxStreamRequests, 4096)
	c.MaxStreamBytes = cmp.Or(c.MaxStreamBytes, 64<<20)
	c.MaxStreamResponses = cmp.Or(c.MaxStreamResponses, math.MaxInt)
	c.StreamStallTimeout = cmp.Or(c.StreamStallTimeout, 30*time.Second)
	c.WindowBytes = cmp.Or(c.WindowBytes, 4<<20)
	c.ConnectionWindowBytes = cmp.Or(c.ConnectionWindowBytes, 16<<20)
	c.ReadBufferBytes = cmp.Or(c.ReadBufferBytes, 128<<10)
	c.WriteBufferBytes = cmp.Or(c.WriteBufferBytes, 128<<10)
	c.ExitTimeout = max(0, cmp.Or(c.ExitTimeout, 30*time.Second))
	return c
}

// Validate names the first field that does not make sense.
func (c GRPCConfig) Validate() error {
	levels := []string{"", GRPCCompressionNone, GRPCCompressionLow, GRPCCompressionMedium, GRPCCompressionHigh}
	switch {
	case c.Port > math.MaxUint16:
		return fmt.Errorf("port is %d, want at most %d", c.Port, math.MaxUint16)
	case c.MaxMessageBytes < 0 || c.MaxMessageBytes > math.MaxInt32:
		return fmt.Errorf("largest message is %d bytes, want at most %d", c.MaxMessageBytes, math.MaxInt32)
	case !slices.Contains(levels, c.Compression):
		return fmt.Errorf("compression is %q, want none, low, medium or high", c.Compression)
	case c.TLS.Enabled && (c.TLS.CertFile == "" || c.TLS.KeyFile == ""):
		return errors.New("encryption needs a certificate and a key")
	case c.TLS.Enabled && c.TLS.Mutual && c.TLS.RootFile == "":
		return errors.New("mutual encryption needs a root certificate")
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"connections", int64(c.MaxConnections)}, {"memory for messages", c.MaxMessageMemory},
		{"requests of a stream", int64(c.MaxStreamRequests)}, {"bytes of a stream", c.MaxStreamBytes},
		{"responses of a request", int64(c.MaxStreamResponses)},
	} {
		if f.value < 0 {
			return fmt.Errorf("limit of %s is %d, want more than 0", f.name, f.value)
		}
	}
	if _, err := grpcNewLocks(c.Restrictions); err != nil {
		return err
	}
	if _, err := regexp.Compile(c.ForwardHeaders); err != nil {
		return fmt.Errorf("pattern of forwarded headers: %w", err)
	}
	return nil
}
