package http1

import (
	"crypto/tls"
	"math"
	"time"

	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/server/connections"
)

// Config has the limits of a Server. The zero value has all defaults.
type Config struct {
	// TLS is the configuration of encryption; nil: no encryption.
	TLS *tls.Config

	// MaxHeaderBytes bounds the request line and headers; default 8 KiB.
	MaxHeaderBytes int
	// MaxChunks bounds the non-empty chunks of a body; default 65536.
	MaxChunks int
	// MaxConnections bounds the open connections. One more evicts the connection that has been idle
	// for longest. If all are busy it gets 503. Default 8192.
	MaxConnections int
	// Connections bounds them together with those of other front ends; nil: separately.
	Connections *connections.Budget
	// MaxDiscardBytes bounds how much of a rejected request's body is read and discarded, so that
	// the client sees the reply. The connection of a longer one is closed. Default 256 MiB.
	MaxDiscardBytes int64

	// HeaderTimeout is the time for the TLS handshake, and again for the headers of a request and
	// the first 64 KiB of its body; default 30 s.
	HeaderTimeout time.Duration
	// BodyBytesPerSecond is the least average rate of the rest of a body, with BodyGrace to spare;
	// defaults 16 KiB and 30 s.
	BodyBytesPerSecond int64
	BodyGrace          time.Duration
	// WriteTimeout is the time in which a client must read the next MiB of a reply; default 60 s.
	WriteTimeout time.Duration
	// IdleTimeout ends connections without a request; default 10 min.
	IdleTimeout time.Duration
	// DrainTime is how long existing connections are served after the end of Run's context; 0: idle
	// ones are closed at once.
	DrainTime time.Duration
	// ExitTimeout is the time that requests have to finish after the end of Run's context; default
	// 30 s.
	ExitTimeout time.Duration
}

// Bounds lists the numbers of c with their defaults and bounds.
func (c *Config) Bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("MaxHeaderBytes", &c.MaxHeaderBytes, 8<<10, 1, math.MaxInt),
		bounds.Of("MaxChunks", &c.MaxChunks, 65536, 1, math.MaxInt),
		bounds.Of("MaxConnections", &c.MaxConnections, 8192, 1, math.MaxInt),
		bounds.Of("MaxDiscardBytes", &c.MaxDiscardBytes, 256<<20, 1, math.MaxInt64),
		bounds.Of("HeaderTimeout", &c.HeaderTimeout, 30*time.Second, 1, bounds.LongestTime),
		bounds.Of("BodyBytesPerSecond", &c.BodyBytesPerSecond, 16<<10, 1, math.MaxInt64),
		bounds.Of("BodyGrace", &c.BodyGrace, 30*time.Second, 1, bounds.LongestTime),
		bounds.Of("WriteTimeout", &c.WriteTimeout, time.Minute, 1, bounds.LongestTime),
		bounds.Of("IdleTimeout", &c.IdleTimeout, 10*time.Minute, 1, bounds.LongestTime),
		bounds.Of("DrainTime", &c.DrainTime, 0, 0, bounds.LongestTime),
		bounds.Of("ExitTimeout", &c.ExitTimeout, 30*time.Second, 1, math.MaxInt64),
	}
}

// WithDefaults returns c with the defaults of fields that are not set.
func (c Config) WithDefaults() Config {
	c.Bounds().SetDefaults()
	return c
}

// Validate names the first invalid field.
func (c Config) Validate() error { return c.Bounds().Validate() }
