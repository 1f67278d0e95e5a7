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
	// MaxLoadFiles bounds the files of a RepositoryModelLoad, before they are decoded; default
	// 16384.
	MaxLoadFiles int
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

// WithDefaults returns c with defaults in place of zero fields.
func (c Config) WithDefaults() Config {
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
	return c
}

// Validate returns an error that names the first invalid field.
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
