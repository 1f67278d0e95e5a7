package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/panics"
)

// Limits on the kept parts of a reply, in bytes. Bodies of responses are read and discarded. The
// first also applies to gRPC.
const (
	mostControl = 64 << 20 // of a reply that is not measured
	mostHead    = 1 << 20  // of the head of a response
	mostText    = 64 << 10 // of an error's text
)

// httpTarget is a server over HTTP.
type httpTarget struct {
	*prepared
	client *http.Client
	// heads and bodies are those of all callers, unless each has its own shared memory.
	heads, bodies [][]byte
}

func newHTTPTarget(p *prepared) *httpTarget {
	return &httpTarget{prepared: p, client: &http.Client{Timeout: p.options.timeout}}
}

func (t *httpTarget) close() { t.client.CloseIdleConnections() }

// modelPath returns the path of the model, or of the requested version.
//
// bound: the command line
func (t *httpTarget) modelPath() string {
	path := "/v2/models/" + url.PathEscape(t.options.model)
	if t.options.version != "" {
		path += "/versions/" + t.options.version
	}
	return path
}

// ask makes a request that is not measured.
func (t *httpTarget) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil { // bound: requests of fixed size
			return nil, err
		}
	}
	base := t.options.url
	if !strings.HasPrefix(base, secure) {
		base = "http://" + base
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	reply, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	text, err = io.ReadAll(io.LimitReader(reply.Body, mostControl+1)) // bound: mostControl
	if err != nil {
		return nil, err
	}
	if len(text) > mostControl {
		return nil, fmt.Errorf("%s %s: the reply has more than %d bytes", method, path, mostControl)
	}
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, path, errorText(reply.StatusCode, text))
	}
	return text, nil
}

// errorText returns the message of an error response.
//
// bound: mostControl, or mostText
func errorText(status int, body []byte) string {
	var fields struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &fields) == nil && fields.Error != "" {
		return strconv.Itoa(status) + ": " + fields.Error
	}
	return strconv.Itoa(status) + ": " + string(bytes.TrimSpace(body[:min(len(body), 200)]))
}

// askMessage reads a reply as the corresponding gRPC message.
func (t *httpTarget) askMessage(ctx context.Context, path string, to proto.Message) error {
	text, err := t.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, to) // bound: the reply, which ask limits
}

func (t *httpTarget) serverName(ctx context.Context) (string, error) {
	var server kserve.ServerMetadataResponse
	err := t.askMessage(ctx, "/v2", &server)
	return server.GetName() + " " + server.GetVersion(), err
}

func (t *httpTarget) config(ctx context.Context) (*kserve.ModelConfig, error) {
	var config kserve.ModelConfig
	return &config, t.askMessage(ctx, t.modelPath()+"/config", &config)
}

func (t *httpTarget) index(ctx context.Context) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	text, err := t.ask(ctx, http.MethodPost, "/v2/repository/index", struct{}{})
	if err != nil {
		return nil, err
	}
	var list []*kserve.RepositoryIndexResponse_ModelIndex
	return list, json.Unmarshal(text, &list) // bound: mostControl
}

func (t *httpTarget) statistics(ctx context.Context) ([]*kserve.ModelStatistics, error) {
	var all kserve.ModelStatisticsResponse
	err := t.askMessage(ctx, t.modelPath()+"/stats", &all)
	return all.GetModelStats(), err
}

func (t *httpTarget) register(ctx context.Context, name, key string, size int64) error {
	_, err := t.ask(ctx, http.MethodPost, "/v2/systemsharedmemory/region/"+name+"/register", map[string]any{"key": key, "offset": 0, "byte_size": size})
	return err
}

func (t *httpTarget) unregister(ctx context.Context, name string) error {
	_, err := t.ask(ctx, http.MethodPost, "/v2/systemsharedmemory/region/"+name+"/unregister", nil)
	return err
}

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
	c := &httpCaller{target: t, path: t.modelPath() + "/infer", heads: t.heads, bodies: t.bodies}
	c.host, _ = t.options.server()
	if c.heads == nil {
		for i, s := range t.samples {
			head, body, err := t.encode(i, s, number)
			if err != nil {
				return nil, err
			}
			c.heads = append(c.heads, head)
			c.bodies = append(c.bodies, body)
		}
		if t.memory == nil {
			t.heads, t.bodies = c.heads, c.bodies
		}
	}
	return c, nil
}

type jsonTensor struct {
	Name       string         `json:"name"`
	Shape      []int64        `json:"shape,omitempty"`
	DataType   string         `json:"datatype,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

// encode creates the head and the tensors of a request.
//
// bound: the sample, and mostDescribed
func (t *httpTarget) encode(index int, s sample, number int) (head, body []byte, err error) {
	var fields struct {
		Inputs  []jsonTensor `json:"inputs"`
		Outputs []jsonTensor `json:"outputs,omitempty"`
	}
	fields.Inputs = []jsonTensor{}
	for i := range s {
		in := &s[i]
		one := jsonTensor{Name: in.Name, Shape: in.Shape, DataType: in.DataType.String()}
		if in.Shape == nil {
			one.Shape = []int64{}
		}
		if t.memory != nil {
			one.Parameters = t.memory.input(index, i)
		} else {
			one.Parameters = map[string]any{"binary_data_size": len(in.Data)}
			body = append(body, in.Data...)
		}
		fields.Inputs = append(fields.Inputs, one)
	}
	for i, output := range t.model.GetOutput() {
		one := jsonTensor{Name: output.GetName(), Parameters: map[string]any{"binary_data": true}}
		if t.memory != nil {
			one.Parameters = t.memory.output(number, i)
		}
		fields.Outputs = append(fields.Outputs, one)
	}
	head, err = json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	return head[1:], body, nil
}

func (c *httpCaller) close() {
	if c.conn != nil {
		c.unhook()
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *httpCaller) dial(ctx context.Context) (net.Conn, error) {
	address, by := c.target.options.server()
	if by != nil {
		return (&tls.Dialer{Config: by}).DialContext(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (c *httpCaller) call(ctx context.Context, r request) (outcome, error) {
	if c.conn == nil {
		conn, err := c.dial(ctx)
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
		return outcome{}, &failure{text: errorText(reply.StatusCode, text)}
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
	b = append(b, "\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: "...)
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(size+len(c.bodies[r.sample])), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, members...)
	c.buffer = append(b, head...)
	return c.buffer
}
