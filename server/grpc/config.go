package grpc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// Config says where the gRPC front end listens and what it lets clients do.
// The zero value serves on all addresses at a port that the kernel chooses,
// without encryption.
type Config struct {
	// Address to listen on; default "0.0.0.0".
	Address string
	// Port to listen on; 0 lets the kernel choose.
	Port int
	// ReusePort lets several servers share the port.
	ReusePort bool

	// ServerName and ServerVersion are what the server's metadata say; default
	// "triton" and "2.51.0".
	ServerName    string
	ServerVersion string

	// Restricted names groups of methods that need a metadata key: Header in lower
	// case behind "triton-grpc-protocol-".
	Restricted []server.Restriction
	// ForwardPattern chooses, by an unanchored match that ignores case, the
	// metadata that an inference passes to the model as parameters; "" none.
	ForwardPattern string
	// Compression of the replies to ModelInfer and ModelStreamInfer: "none", the
	// default, "low", "medium" or "high".
	Compression string
	TLS         TLS

	// KeepaliveTime is the time between pings to an idle client, default 2 h,
	// and KeepaliveTimeout the time in which one must be answered, default 20 s.
	KeepaliveTime    time.Duration
	KeepaliveTimeout time.Duration
	// PermitPingsWithoutCalls lets clients ping while they have no RPC, and
	// MinPingInterval, default 5 min, is how far apart pings must be; a client
	// that pings more often is sent away with "too_many_pings".
	PermitPingsWithoutCalls bool
	MinPingInterval         time.Duration
	// MaxConnectionAge ends connections, after which their RPCs have
	// MaxConnectionAgeGrace to finish; 0 is endless.
	MaxConnectionAge      time.Duration
	MaxConnectionAgeGrace time.Duration

	// MaxMessageBytes bounds a message received, also when decompressed; default
	// and at most 2^31-1.
	MaxMessageBytes int
	// MaxHeaderBytes bounds the metadata of an RPC; default 64 KiB.
	MaxHeaderBytes int
	// MaxConnections bounds the open connections: for one more, that is closed
	// which has been without an RPC for longest. If none is, it is closed itself.
	// Default 8192. MaxCalls bounds the RPCs at once on one; default 4096.
	MaxConnections int
	MaxCalls       int
	// MaxLoadFiles bounds the files that come with a RepositoryModelLoad, before they are
	// decoded; default 16384.
	MaxLoadFiles int
	// Connections bounds them together with those of other front ends; nil: by
	// themselves.
	Connections *connections.Budget
	// MaxStreamRequests bounds the requests in flight on one ModelStreamInfer:
	// the next one waits to be read; default 4096.
	MaxStreamRequests int
	// MaxStreamBytes bounds the bytes of replies that wait on one
	// ModelStreamInfer, and MaxStreamResponses the replies to one request that
	// do: beyond them a model waits for the client. Defaults 64 MiB and 2^31-1.
	MaxStreamBytes     int64
	MaxStreamResponses int
	// StreamStallTimeout is how long a model waits for a client that does not
	// read, before its stream is ended; default 30 s.
	StreamStallTimeout time.Duration
	// StreamFullTimeout is the same for a client for which MaxStreamBytes wait, of a model that
	// cannot be made to wait; default 2 s.
	StreamFullTimeout time.Duration
	// ReadTimeout is the time in which a client must send the next 128 KiB of a
	// request that it has begun; default 30 s. After that its connection is closed.
	ReadTimeout time.Duration
	// WriteTimeout is the time in which a client must take a reply whose bytes
	// are lent to it, or any of the other replies that wait, and as much again for each MiB;
	// default 1 min. After that its connection is closed.
	WriteTimeout time.Duration
	// StreamWindowBytes are what a client may send of a call, or of a stream, before the
	// server has read it; 64 KiB to 512 MiB, default 4 MiB. The window of a connection is four
	// times as large and bounds nothing more: the library opens it again for all that arrives.
	StreamWindowBytes int
	// HandshakeTimeout is the time for TLS and the start of HTTP/2; default 20 s.
	HandshakeTimeout time.Duration
	// ExitTimeout is the time that RPCs have to finish after the end of Run's
	// context; default 30 s.
	ExitTimeout time.Duration
}

// The sizes of the transport's windows and buffers in bytes: enough for a fast
// network, and buffers are held by connections that are busy only.
const (
	streamWindow     = 4 << 20 // the default of Config.StreamWindowBytes
	connectionWindow = 4       // in windows of a stream
	bufferBytes      = 128 << 10
)

// TLS says how connections are encrypted. The files are PEM.
type TLS struct {
	Enabled  bool
	CertFile string
	KeyFile  string
	RootFile string // whose clients are accepted, with Mutual
	Mutual   bool   // clients must show a certificate
}

// WithDefaults returns c with what holds where a field is not set.
func (c Config) WithDefaults() Config {
	c.setDefaults()
	return c
}

func (c *Config) setDefaults() {
	c.Address = cmp.Or(c.Address, "0.0.0.0")
	c.ServerName = cmp.Or(c.ServerName, "triton")
	c.ServerVersion = cmp.Or(c.ServerVersion, "2.51.0")
	c.Compression = cmp.Or(c.Compression, message.CompressionNone)
	c.KeepaliveTime = cmp.Or(c.KeepaliveTime, 2*time.Hour)
	c.KeepaliveTimeout = cmp.Or(c.KeepaliveTimeout, 20*time.Second)
	c.MinPingInterval = cmp.Or(c.MinPingInterval, 5*time.Minute)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, math.MaxInt32)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 64<<10)
	c.MaxConnections = cmp.Or(c.MaxConnections, 8192)
	c.MaxCalls = cmp.Or(c.MaxCalls, 4096)
	c.MaxLoadFiles = cmp.Or(c.MaxLoadFiles, 16384)
	c.MaxStreamRequests = cmp.Or(c.MaxStreamRequests, 4096)
	c.MaxStreamBytes = cmp.Or(c.MaxStreamBytes, 64<<20)
	c.MaxStreamResponses = cmp.Or(c.MaxStreamResponses, math.MaxInt32)
	c.StreamStallTimeout = cmp.Or(c.StreamStallTimeout, 30*time.Second)
	c.StreamFullTimeout = cmp.Or(c.StreamFullTimeout, 2*time.Second)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, time.Minute)
	c.StreamWindowBytes = cmp.Or(c.StreamWindowBytes, streamWindow)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 20*time.Second)
	c.ExitTimeout = cmp.Or(c.ExitTimeout, 30*time.Second)
}

// Validate names the first field that cannot be used.
func (c Config) Validate() error {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"KeepaliveTime", int64(c.KeepaliveTime)},
		{"KeepaliveTimeout", int64(c.KeepaliveTimeout)},
		{"MinPingInterval", int64(c.MinPingInterval)},
		{"MaxConnectionAge", int64(c.MaxConnectionAge)},
		{"MaxConnectionAgeGrace", int64(c.MaxConnectionAgeGrace)},
		{"MaxMessageBytes", int64(c.MaxMessageBytes)},
		{"MaxHeaderBytes", int64(c.MaxHeaderBytes)},
		{"MaxConnections", int64(c.MaxConnections)},
		{"MaxCalls", int64(c.MaxCalls)},
		{"MaxLoadFiles", int64(c.MaxLoadFiles)},
		{"MaxStreamRequests", int64(c.MaxStreamRequests)},
		{"MaxStreamBytes", c.MaxStreamBytes},
		{"MaxStreamResponses", int64(c.MaxStreamResponses)},
		{"StreamStallTimeout", int64(c.StreamStallTimeout)},
		{"StreamFullTimeout", int64(c.StreamFullTimeout)},
		{"ReadTimeout", int64(c.ReadTimeout)},
		{"WriteTimeout", int64(c.WriteTimeout)},
		{"HandshakeTimeout", int64(c.HandshakeTimeout)},
		{"ExitTimeout", int64(c.ExitTimeout)},
	} {
		if field.value < 0 {
			return fmt.Errorf("%s is %d, want at least 0", field.name, field.value)
		}
	}
	for _, field := range []struct {
		name  string
		value int
		most  int
	}{
		{"MaxMessageBytes", c.MaxMessageBytes, math.MaxInt32},
		{"MaxHeaderBytes", c.MaxHeaderBytes, math.MaxInt32},
		{"MaxCalls", c.MaxCalls, math.MaxInt32},
	} {
		if field.value > field.most {
			return fmt.Errorf("%s is %d, want at most %d", field.name, field.value, field.most)
		}
	}
	if w := c.StreamWindowBytes; w != 0 && (w < 64<<10 || w > 512<<20) {
		return fmt.Errorf("StreamWindowBytes is %d, want %d to %d", w, 64<<10, 512<<20)
	}
	if c.Port < 0 || c.Port > math.MaxUint16 {
		return fmt.Errorf("Port is %d, want 0 to 65535", c.Port)
	}
	if c.Compression != "" && !slices.Contains(message.CompressionLevels, c.Compression) {
		return fmt.Errorf("Compression is %q, want one of %q", c.Compression, message.CompressionLevels)
	}
	if c.TLS.Enabled && (c.TLS.CertFile == "" || c.TLS.KeyFile == "") {
		return errors.New("TLS is enabled, want a certificate and a key")
	}
	if c.TLS.Enabled && c.TLS.Mutual && c.TLS.RootFile == "" {
		return errors.New("TLS is mutual, want a root certificate")
	}
	_, err := server.NewAccess(c.Restricted, c.ForwardPattern)
	return err
}
