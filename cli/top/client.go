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
	maxErrorText = 300

	// maxReply limits a reply in bytes, except the metrics, which are read line by line. The status of
	// 10,000 models with requests has 26 MiB.
	maxReply = 64 << 20
	// The elements of all arrays in a reply are limited, since two bytes of text can take 264 of
	// memory. 10,000 models have 1.1 million in the status, which counts latencies, and fewer
	// elsewhere.
	maxElements       = 500_000
	maxStatusElements = 2_000_000
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
func (c *client) ask(ctx context.Context, limit time.Duration, method string, base *url.URL, path string, body []byte) (text []byte, err error) {
	err = c.stream(ctx, limit, method, base, path, body, func(reply io.Reader) (err error) {
		text, err = readAll(reply)
		return err
	})
	return text, err
}

func readAll(reply io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(reply, maxReply+1))
	if err == nil && len(text) > maxReply {
		return nil, fmt.Errorf("the reply has more than %d MiB", maxReply>>20)
	}
	return text, err
}

// stream is ask for a function that reads the body.
func (c *client) stream(ctx context.Context, limit time.Duration, method string, base *url.URL, path string, body []byte, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no reply within %s", limit))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return shorten(ctx, err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, err := readAll(reply.Body)
		if err != nil {
			return shorten(ctx, err)
		}
		return &refusal{reply.StatusCode, errorText(text)}
	}
	if err := read(reply.Body); err != nil {
		return shorten(ctx, err)
	}
	return nil
}

// decode parses JSON with a limited number of elements.
func decode(text []byte, into any, most int) error {
	if n := elements(text); n > most {
		return fmt.Errorf("the reply has %d elements of arrays, at most %d are read", n, most)
	}
	return json.Unmarshal(text, into)
}

// elements counts the elements of all arrays of a JSON text. An empty array counts as one.
func elements(text []byte) (n int) {
	inArray := make([]bool, 0, 64) // by depth
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			inArray = append(inArray, text[i] == '[')
			if text[i] == '[' {
				n++
			}
		case ']', '}':
			inArray = inArray[:max(0, len(inArray)-1)]
		case ',':
			if len(inArray) > 0 && inArray[len(inArray)-1] {
				n++
			}
		}
	}
	return n
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
