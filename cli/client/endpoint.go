package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// MaxReply limits the body of a reply in bytes. The status of 10,000 models with requests has 26
// MiB.
const MaxReply = 64 << 20

// maxText limits an error's text that is not in the protocol's form, in bytes.
const maxText = 200

// Endpoint is an HTTP endpoint of a server.
type Endpoint struct {
	*Address
	HTTP   *http.Client
	Header http.Header   // of each request
	Limit  time.Duration // of the wait for a reply of Ask, Read and Invoke
}

// NewEndpoint returns the endpoint at an address. It ignores proxies from the environment.
func NewEndpoint(a *Address, limit time.Duration) *Endpoint {
	return &Endpoint{Address: a, Limit: limit, HTTP: &http.Client{Transport: &http.Transport{DialContext: a.dial, MaxIdleConnsPerHost: 1000}}}
}

// Close closes idle connections.
func (e *Endpoint) Close() { e.HTTP.CloseIdleConnections() }

// DialError is the reason why there is no connection.
type DialError struct{ error }

// Error implements error. Nothing listens while models are loaded at startup.
func (e DialError) Error() string {
	if errors.Is(e.error, syscall.ECONNREFUSED) || errors.Is(e.error, fs.ErrNotExist) {
		return e.error.Error() + loading
	}
	return e.error.Error()
}

// loading tells why no server may listen at an address.
const loading = "; a server listens once its models are loaded"

// Refusal is a reply with a status other than 200.
type Refusal struct {
	Status int
	Text   string
}

func (e *Refusal) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("status %d", e.Status)
	}
	return fmt.Sprintf("status %d: %s", e.Status, e.Text)
}

// IsRefusal reports whether the server has replied with an error.
func IsRefusal(err error) bool {
	var r *Refusal
	return errors.As(err, &r)
}

// Do sends a request. An error is only the reason, and a DialError if there is no connection.
func (e *Endpoint) Do(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, e.base()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	reply, err := e.HTTP.Do(r)
	if err != nil {
		return nil, reason(ctx, err)
	}
	return reply, nil
}

// Ask sends a request and returns the body of the reply. The error is a *Refusal if the server has
// replied with another status than 200.
func (e *Endpoint) Ask(ctx context.Context, method, path string, body []byte) (text []byte, err error) {
	err = e.Read(ctx, method, path, body, func(reply io.Reader) (err error) {
		text, err = ReadAll(reply)
		return err
	})
	return text, err
}

// Read is Ask for a function that reads the body.
func (e *Endpoint) Read(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limit, fmt.Errorf("no answer within %s", e.Limit))
	defer cancel()
	reply, err := e.Do(ctx, method, path, e.Header, body)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode == http.StatusOK {
		err = read(reply.Body)
	} else {
		var text []byte
		if text, err = ReadAll(reply.Body); err == nil {
			return &Refusal{reply.StatusCode, ErrorText(text)}
		}
	}
	if err != nil {
		return reason(ctx, err)
	}
	return nil
}

// ReadAll reads a body of at most MaxReply bytes.
func ReadAll(reply io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(reply, MaxReply+1))
	if err == nil && len(text) > MaxReply {
		return nil, fmt.Errorf("the reply has more than %d MiB", MaxReply>>20)
	}
	return text, err
}

// ErrorText returns the beginning of the error in the body of a reply, in the protocol's form or
// another.
func ErrorText(body []byte) string {
	var told struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &told) == nil && told.Error != "" {
		return infer.Cut(told.Error, infer.MaxEcho)
	}
	return string(bytes.TrimSpace(body[:min(len(body), maxText)]))
}

// reason returns only the reason from an error of package http.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var network *net.OpError
	switch {
	case !errors.As(err, &network):
		return err
	case network.Op == "dial":
		return DialError{network.Err}
	}
	return network.Err
}
