package http1

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"time"

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

// WithDefaults returns c with the defaults of fields that are not set.
func (c Config) WithDefaults() Config {
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 8<<10)
	c.MaxChunks = cmp.Or(c.MaxChunks, 65536)
	c.MaxConnections = cmp.Or(c.MaxConnections, 8192)
	c.MaxDiscardBytes = cmp.Or(c.MaxDiscardBytes, 256<<20)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, 30*time.Second)
	c.BodyBytesPerSecond = cmp.Or(c.BodyBytesPerSecond, 16<<10)
	c.BodyGrace = cmp.Or(c.BodyGrace, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, time.Minute)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Minute)
	c.ExitTimeout = cmp.Or(c.ExitTimeout, 30*time.Second)
	return c
}

// Validate names the first invalid field.
func (c Config) Validate() error {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"MaxHeaderBytes", int64(c.MaxHeaderBytes)},
		{"MaxChunks", int64(c.MaxChunks)},
		{"MaxConnections", int64(c.MaxConnections)},
		{"MaxDiscardBytes", c.MaxDiscardBytes},
		{"HeaderTimeout", int64(c.HeaderTimeout)},
		{"BodyBytesPerSecond", c.BodyBytesPerSecond},
		{"BodyGrace", int64(c.BodyGrace)},
		{"WriteTimeout", int64(c.WriteTimeout)},
		{"IdleTimeout", int64(c.IdleTimeout)},
		{"DrainTime", int64(c.DrainTime)},
		{"ExitTimeout", int64(c.ExitTimeout)},
	} {
		if field.value < 0 {
			return fmt.Errorf("%s is %d, want at least 0", field.name, field.value)
		}
	}
	return nil
}
