package grpc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// Config sets up the gRPC front end. The zero value listens on all addresses, at a port that the
// kernel chooses, without encryption.
type Config struct {
	// Address to listen on, or unix:PATH; default "0.0.0.0".
	Address    string
	UnixSocket connections.UnixSocket
	// Port to listen on; 0 lets the kernel choose.
	Port int
	// ReusePort lets several servers share the port.
	ReusePort bool

	// ServerName and ServerVersion appear in the server's metadata; default "triton" and "2.51.0".
	ServerName    string
	ServerVersion string

	// Restricted lists groups of methods that require a metadata key: "triton-grpc-protocol-"
	// followed by Header in lower case.
	Restricted []server.Restriction
	// ForwardPattern selects the metadata that an inference passes to the model as parameters, by
	// an unanchored match that ignores case; "" selects none.
	ForwardPattern string
	// Compression of the replies to ModelInfer and ModelStreamInfer: "none", the
	// default, "low", "medium" or "high".
	Compression string
	TLS         TLS

	// KeepaliveTime is the time between pings to an idle client, default 2 h.
	// KeepaliveTimeout is the time to wait for the reply to a ping, default 20 s.
	KeepaliveTime    time.Duration
	KeepaliveTimeout time.Duration
	// PermitPingsWithoutCalls lets clients ping while they have no RPC. MinPingInterval, default
	// 5 min, is the minimum time between pings; the connection of a client that pings more often
	// ends with "too_many_pings".
	PermitPingsWithoutCalls bool
	MinPingInterval         time.Duration
	// MaxConnectionAge is the time after which a connection is closed. Its RPCs then have
	// MaxConnectionAgeGrace to finish; 0 is unlimited.
	MaxConnectionAge      time.Duration
	MaxConnectionAgeGrace time.Duration

	// MaxMessageBytes bounds a message received, also when decompressed; default
	// and at most 2^31-1.
	MaxMessageBytes int
	// MaxHeaderBytes bounds the metadata of an RPC; default 64 KiB.
	MaxHeaderBytes int
	// MaxConnections bounds the open connections; default 8192. A new connection beyond the bound
	// evicts the connection whose last RPC ended first. If all have RPCs, the new
	// one is closed. MaxCalls bounds the concurrent RPCs of one connection; default 4096.
	MaxConnections int
	MaxCalls       int
	// Connections bounds the connections of several front ends together; nil: no common bound.
	Connections *connections.Budget
	// MaxStreamRequests bounds the requests in flight on one ModelStreamInfer; default 4096.
	// The next one is not read until one of them ends.
	MaxStreamRequests int
	// MaxStreamBytes bounds the queued reply bytes of one ModelStreamInfer, MaxStreamResponses the
	// queued replies to one request. At the bound the model waits for the client. Defaults 64 MiB
	// and 2^31-1.
	MaxStreamBytes     int64
	MaxStreamResponses int
	// StreamStallTimeout is how long a model waits for a client that does not read before the
	// stream ends; default 30 s.
	StreamStallTimeout time.Duration
	// StreamFullTimeout replaces StreamStallTimeout when MaxStreamBytes are queued and the model
	// cannot be made to wait; default 2 s.
	StreamFullTimeout time.Duration
	// ReadTimeout is the time for the next 128 KiB of a request that a client has begun to send;
	// default 30 s. After that the connection is closed.
	ReadTimeout time.Duration
	// WriteTimeout is the time for a client to read a queued reply, plus the same time for each
	// MiB; default 1 min. After that the connection is closed.
	WriteTimeout time.Duration
	// StreamWindowBytes is the HTTP/2 flow-control window of a stream: how much a client may send
	// before the server has read it; 64 KiB to 512 MiB, default 4 MiB. A connection's window is
	// four times as large and is no further bound: the library reopens it for everything that
	// arrives.
	StreamWindowBytes int
	// HandshakeTimeout is the time for the handshakes of TLS and HTTP/2; default 20 s.
	HandshakeTimeout time.Duration
	// ExitTimeout is the time for RPCs to finish after Run's context has ended; default 30 s.
	ExitTimeout time.Duration
}

// Sizes of the transport's windows and buffers in bytes. They suit a fast network. Only busy
// connections hold buffers.
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
	RootFile string // the authority of client certificates, with Mutual
	Mutual   bool   // clients must present a certificate
}

// Bounds lists the numbers of c with their defaults and bounds.
func (c *Config) Bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("Port", &c.Port, 0, 0, math.MaxUint16),
		bounds.Of("KeepaliveTime", &c.KeepaliveTime, 2*time.Hour, 1, bounds.LongestTime),
		bounds.Of("KeepaliveTimeout", &c.KeepaliveTimeout, 20*time.Second, 1, bounds.LongestTime),
		bounds.Of("MinPingInterval", &c.MinPingInterval, 5*time.Minute, 1, bounds.LongestTime),
		bounds.Of("MaxConnectionAge", &c.MaxConnectionAge, 0, 0, bounds.LongestTime),
		bounds.Of("MaxConnectionAgeGrace", &c.MaxConnectionAgeGrace, 0, 0, bounds.LongestTime),
		bounds.Of("MaxMessageBytes", &c.MaxMessageBytes, math.MaxInt32, 1, math.MaxInt32),
		bounds.Of("MaxHeaderBytes", &c.MaxHeaderBytes, 64<<10, 1, math.MaxInt32),
		bounds.Of("MaxConnections", &c.MaxConnections, 8192, 1, math.MaxInt),
		bounds.Of("MaxCalls", &c.MaxCalls, 4096, 1, math.MaxInt32),
		bounds.Of("MaxStreamRequests", &c.MaxStreamRequests, 4096, 1, math.MaxInt),
		bounds.Of("MaxStreamBytes", &c.MaxStreamBytes, 64<<20, 1, math.MaxInt64),
		bounds.Of("MaxStreamResponses", &c.MaxStreamResponses, math.MaxInt32, 1, math.MaxInt32),
		bounds.Of("StreamStallTimeout", &c.StreamStallTimeout, 30*time.Second, 1, bounds.LongestTime),
		bounds.Of("StreamFullTimeout", &c.StreamFullTimeout, 2*time.Second, 1, bounds.LongestTime),
		bounds.Of("ReadTimeout", &c.ReadTimeout, 30*time.Second, 1, bounds.LongestTime),
		bounds.Of("WriteTimeout", &c.WriteTimeout, time.Minute, 1, bounds.LongestTime),
		bounds.Of("StreamWindowBytes", &c.StreamWindowBytes, streamWindow, 64<<10, 512<<20),
		bounds.Of("HandshakeTimeout", &c.HandshakeTimeout, 20*time.Second, 1, bounds.LongestTime),
		bounds.Of("ExitTimeout", &c.ExitTimeout, 30*time.Second, 1, math.MaxInt64),
	}
}

// WithDefaults returns c with defaults in place of zero fields.
func (c Config) WithDefaults() Config {
	c.Address = cmp.Or(c.Address, "0.0.0.0")
	c.ServerName = cmp.Or(c.ServerName, "triton")
	c.ServerVersion = cmp.Or(c.ServerVersion, "2.51.0")
	c.Compression = cmp.Or(c.Compression, message.CompressionNone)
	c.Bounds().SetDefaults()
	return c
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	if err := c.Bounds().Validate(); err != nil {
		return err
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
