package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// askLimit limits a request to one endpoint.
	askLimit = 3 * time.Second
	// controlLimit limits a load, which may take long.
	controlLimit = time.Hour
	maxReply     = 64 << 20 // bytes
	maxErrorText = 300
)

// client sends requests to a server.
type client struct {
	http   *http.Client
	header http.Header
}

// refusal is a reply with a status other than 200.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string {
	if e.text == "" {
		return fmt.Sprintf("status %d", e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.text)
}

// ask makes a request and returns the body of its reply. An error is short; it is a *refusal if the
// server has replied.
func (c *client) ask(ctx context.Context, limit time.Duration, method string, base *url.URL, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no reply within %s", limit))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return nil, shorten(ctx, err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return nil, shorten(ctx, err)
	}
	if reply.StatusCode != http.StatusOK {
		return nil, &refusal{reply.StatusCode, errorText(text)}
	}
	return text, nil
}

// shorten returns only the reason from an error of package http.
func shorten(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// errorText returns the error of a response, in the protocol's form or unchanged.
func errorText(body []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	text := string(body)
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		text = said.Error
	}
	text = strings.TrimSpace(text)
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return text
}

// isRefusal reports whether the server has replied with an error.
func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}
