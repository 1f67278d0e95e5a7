package rest

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/certificates"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/rest/origins"
)

// Config has the address and the limits of the HTTP front end. The zero value listens on all
// addresses at a port that the kernel chooses.
type Config struct {
	// Config has the limits and times of connections.
	http1.Config

	// Address to listen on, or unix:PATH; default "0.0.0.0".
	Address    string
	UnixSocket connections.UnixSocket
	// Port to listen on; 0 lets the kernel choose.
	Port int
	// ReusePort lets several servers share the port.
	ReusePort bool
	// Certificates encrypt the connections; without them there is no encryption.
	Certificates certificates.Files

	// ServerName and ServerVersion are in the server's metadata; default "triton" and "2.51.0".
	ServerName    string
	ServerVersion string

	// MaxInputBytes bounds the JSON of a request, a raw input, an input's JSON
	// data when decoded, and a decompressed body; default 64 MiB.
	MaxInputBytes int64
	// Restricted names groups of endpoints that need a header.
	Restricted []server.Restriction
	// Framing determines where the JSON of an inference ends.
	Framing inference.Framing
	// ForwardPattern chooses the headers that an inference passes to the model as parameters, by an
	// unanchored match that ignores case. "" chooses none.
	ForwardPattern string
	// AllowOrigins are the origins whose pages may use the endpoints from a browser, "*" for all;
	// default none.
	AllowOrigins []string
	// Hosts are names under which browsers may reach the page and the status, besides addresses and
	// localhost.
	Hosts []string
	// Addresses describe the server's other endpoints on the page.
	Addresses []string
}

// Bounds lists the numbers of c with their defaults and bounds.
func (c *Config) Bounds() bounds.Table {
	return append(bounds.Table{
		bounds.Of("Port", &c.Port, 0, 0, math.MaxUint16),
		bounds.Of("MaxInputBytes", &c.MaxInputBytes, 64<<20, 1, math.MaxInt64),
	}, c.Config.Bounds()...) // bound: the fields
}

// WithDefaults returns c with the defaults of fields that are not set.
func (c Config) WithDefaults() Config {
	c.Address = cmp.Or(c.Address, "0.0.0.0")
	c.ServerName = cmp.Or(c.ServerName, "triton")
	c.ServerVersion = cmp.Or(c.ServerVersion, "2.51.0")
	c.Bounds().SetDefaults()
	return c
}

// encrypts reports whether connections are encrypted.
func (c Config) encrypts() bool { return c.Certificates != certificates.Files{} }

// Validate names the first invalid field.
func (c Config) Validate() error {
	if err := c.Bounds().Validate(); err != nil {
		return err
	}
	if c.encrypts() && (c.Certificates.Cert == "" || c.Certificates.Key == "") {
		return errors.New("Certificates are not complete, want a certificate and a key")
	}
	if _, err := origins.New(c.AllowOrigins); err != nil {
		return fmt.Errorf("AllowOrigins: %w", err)
	}
	_, err := server.NewAccess(c.Restricted, c.ForwardPattern)
	return err
}
