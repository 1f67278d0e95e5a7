package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/panics"
)

// Limits on the kept parts of a reply, in bytes. Bodies of responses are read and discarded.
const (
	mostHead = 1 << 20  // of the head of a response
	mostText = 64 << 10 // of an error's text
)

// httpTarget is a server over HTTP.
type httpTarget struct {
	*prepared
	// heads and bodies are those of all callers, unless each has its own shared memory.
	heads, bodies [][]byte
}

func (t *httpTarget) close() {}

// httpCaller has one connection.
type httpCaller struct {
	target *httpTarget
	// heads are the JSON of each sample without its opening brace, because members about sequences
	// are inserted there.
	heads  [][]byte // bound: the samples
	bodies [][]byte // the tensors of each sample; bound: the samples
	path   string
	host   string // for the Host header

	conn   net.Conn
	from   *bounded // conn, for reader
	reader *bufio.Reader
	unhook func() bool // removes the hook that unblocks conn when the context ends
	buffer []byte
}

func (t *httpTarget) newCaller(number int) (caller, error) {
	at := t.options.address
	path := at.EscapedPath() + client.ModelPath(t.options.model, t.options.version) + "/infer"
	c := &httpCaller{target: t, path: path, host: at.HostHeader(), heads: t.heads, bodies: t.bodies}
	if c.heads == nil {
		for i, s := range t.samples {
			head, body, err := t.request(i, s, number).HTTP()
			if err != nil {
				return nil, err
			}
			c.heads = append(c.heads, head[1:])
			c.bodies = append(c.bodies, body)
		}
		if t.memory == nil {
			t.heads, t.bodies = c.heads, c.bodies
		}
	}
	return c, nil
}

func (c *httpCaller) close() {
	if c.conn != nil {
		c.unhook()
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *httpCaller) call(ctx context.Context, r request) (outcome, error) {
	if c.conn == nil {
		conn, err := c.target.options.address.Dial(ctx)
		if err != nil {
			return outcome{}, brokenf("connect: %v", err)
		}
		c.conn, c.from = conn, &bounded{from: conn}
		c.reader = bufio.NewReaderSize(c.from, 64<<10) // bound: 64 KiB
		c.unhook = context.AfterFunc(ctx, panics.Guard(zerolog.Nop(), panics.Request, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }, nil))
	}
	if err := c.conn.SetDeadline(time.Now().Add(c.target.options.timeout)); err != nil {
		return outcome{}, c.broken(err)
	}
	if err := ctx.Err(); err != nil { // clears the deadline that the end of the context has set
		return outcome{}, c.broken(err)
	}
	if _, err := (&net.Buffers{c.request(r), c.bodies[r.sample]}).WriteTo(c.conn); err != nil {
		return outcome{}, c.broken(err)
	}
	c.from.left = mostHead
	reply, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return outcome{}, c.broken(err)
	}
	c.from.left = math.MaxInt64
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(reply.Body, mostText)) // bound: mostText
		if err != nil {
			return outcome{}, c.broken(err)
		}
		if len(text) == mostText { // the text may be longer
			c.close()
		}
		c.closeAfter(reply)
		return outcome{}, &failure{text: strconv.Itoa(reply.StatusCode) + ": " + client.ErrorText(text)}
	}
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		return outcome{}, c.broken(err)
	}
	c.closeAfter(reply)
	return outcome{responses: 1}, nil
}

// bounded reads at most left more bytes.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the head of the reply has more than %d bytes", mostHead)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// closeAfter closes the connection if the server is going to.
func (c *httpCaller) closeAfter(reply *http.Response) {
	if reply.Close {
		c.close()
	}
}

func (c *httpCaller) broken(err error) error {
	c.close()
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return brokenf("no answer in %s", c.target.options.timeout)
	}
	return brokenf("%v", err)
}

// request returns the head of a request, and the JSON before its tensors.
//
// bound: the sample, and the command line
func (c *httpCaller) request(r request) []byte {
	var members []byte
	if r.sequence != 0 {
		members = fmt.Appendf(nil, `{"parameters":{"sequence_id":%d,"sequence_start":%t,"sequence_end":%t},`, r.sequence, r.start, r.end)
	} else {
		members = []byte("{")
	}
	head := c.heads[r.sample]
	size := len(members) + len(head)
	b := c.buffer[:0]
	b = append(b, "POST "...)
	b = append(b, c.path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.host...)
	b = append(b, "\r\nContent-Type: application/octet-stream\r\n"+client.LengthHeader+": "...)
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(size+len(c.bodies[r.sample])), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, members...)
	c.buffer = append(b, head...)
	return c.buffer
}
