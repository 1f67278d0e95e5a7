package server

import (
	"fmt"
	"time"

	"github.com/nereid-serving/nereid/server/connections"
)

// HTTPConfig says where the HTTP front end listens and what it lets clients do.
// The zero value serves on all addresses at a port that the kernel chooses.
type HTTPConfig struct {
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

	// MaxInputBytes bounds the JSON of a request, a raw input, an input's JSON
	// data when decoded, and a decompressed body; default 64 MiB.
	MaxInputBytes int64
	// MaxHeaderBytes bounds the request line and headers; default 8 KiB.
	MaxHeaderBytes int
	// MaxChunks bounds the non-empty chunks of a body; default 65536.
	MaxChunks int
	// MaxConnections bounds the open connections: for one more, that is closed
	// which has been idle for longest. If none is, it gets 503. Default 8192.
	MaxConnections int
	// Connections bounds them together with those of other front ends; nil: by
	// themselves.
	Connections *connections.Budget
	// MaxDiscardBytes is how much of a refused request's body is read and thrown
	// away, so that the client sees the reply; beyond it the connection is
	// closed. Default 256 MiB.
	MaxDiscardBytes int64

	// HeaderTimeout is the time for the headers of a request and the first
	// 64 KiB of its body; default 30 s.
	HeaderTimeout time.Duration
	// BodyBytesPerSecond is how fast the rest of a body must arrive on average,
	// with BodyGrace to spare; defaults 16 KiB and 30 s.
	BodyBytesPerSecond int64
	BodyGrace          time.Duration
	// WriteTimeout is the time in which a client must take the next MiB of a
	// reply; default 60 s.
	WriteTimeout time.Duration
	// IdleTimeout ends connections on which no request comes; default 10 min.
	IdleTimeout time.Duration
	// DrainTime is how long after the end of Run's context connections are served
	// that exist; 0: idle ones are closed at once.
	DrainTime time.Duration
	// ExitTimeout is the time that requests have to finish after the end of
	// Run's context; default 30 s.
	ExitTimeout time.Duration

	// Restricted names groups of endpoints that need a header.
	Restricted []Restriction
	// ForwardPattern chooses, by an unanchored match that ignores case, the
	// headers that an inference passes to the model as parameters; "" none.
	ForwardPattern string
}

func orDefault[T int | int64 | time.Duration | string](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// WithDefaults returns c with what holds where a field is not set.
func (c HTTPConfig) WithDefaults() HTTPConfig {
	c.setDefaults()
	return c
}

func (c *HTTPConfig) setDefaults() {
	orDefault(&c.Address, "0.0.0.0")
	orDefault(&c.ServerName, "triton")
	orDefault(&c.ServerVersion, "2.51.0")
	orDefault(&c.MaxInputBytes, 64<<20)
	orDefault(&c.MaxHeaderBytes, 8<<10)
	orDefault(&c.MaxChunks, 65536)
	orDefault(&c.MaxConnections, 8192)
	orDefault(&c.MaxDiscardBytes, 256<<20)
	orDefault(&c.HeaderTimeout, 30*time.Second)
	orDefault(&c.BodyBytesPerSecond, 16<<10)
	orDefault(&c.BodyGrace, 30*time.Second)
	orDefault(&c.WriteTimeout, time.Minute)
	orDefault(&c.IdleTimeout, 10*time.Minute)
	orDefault(&c.ExitTimeout, 30*time.Second)
}

// Validate names the first field that cannot be used.
func (c HTTPConfig) Validate() error {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"MaxInputBytes", c.MaxInputBytes},
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
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("Port is %d, want 0 to 65535", c.Port)
	}
	if _, err := NewRestrictions(c.Restricted); err != nil {
		return fmt.Errorf("Restricted: %w", err)
	}
	if _, err := NewForwarding(c.ForwardPattern); err != nil {
		return fmt.Errorf("ForwardPattern: %w", err)
	}
	return nil
}
