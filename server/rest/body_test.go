package rest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/servertest"
)

// binaryInput returns the JSON of a request with one binary input of size bytes.
func binaryInput(size int) string {
	return fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],%s}`, size, size, binaryOutput)
}

// announce sends the head of a request that announces a binary input of size bytes, and the first
// sent bytes of it.
func announce(t *testing.T, s *TestServer, size, sent int) *TestConn {
	t.Helper()
	c := s.Connect(t)
	head := binaryInput(size)
	c.Send(fmt.Sprintf("POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: x\r\n%s: %d\r\nContent-Length: %d\r\n\r\n%s%s",
		inference.HeaderLengthName, len(head), len(head)+size, head, strings.Repeat("x", sent)))
	return c
}

// TestAnnouncedBodiesTakeNothing checks that clients that announce large bodies without sending
// them reserve no memory.
func TestAnnouncedBodiesTakeNothing(t *testing.T) {
	s := StartHTTP(t, rest.Config{Config: http1.Config{HeaderTimeout: 2 * Patience}}, nil)
	const each = 100 << 20 // together twice the limit
	s.Blocks.Account.Must(budget.Blocks, 1<<30/body.PlentyPart)
	defer s.Blocks.Account.Give(budget.Blocks, 1<<30/body.PlentyPart)
	var conns []*TestConn
	for range 20 {
		conns = append(conns, announce(t, s, each, 10))
	}
	Eventually(t, "all bodies are begun", func() bool { return s.Blocks.Lent.Load() == 20 })
	if used, most := s.Blocks.Account.Total()-s.Blocks.Account.Used(budget.Connections)-(1<<30)/body.PlentyPart, int64(20*2*body.FirstStep); used > most {
		t.Errorf("%d bytes are charged for 200 that came, want at most %d", used, most)
	}
	const size = 4 << 20
	if got := s.Infer(t, "id_uint8", binaryInput(size), strings.Repeat("x", size)); got.Status != 200 {
		t.Errorf("beside them: got status %d, want 200", got.Status)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	Eventually(t, "all is given back", func() bool {
		return s.Blocks.Lent.Load() == 0 && s.Blocks.Account.Total()-s.Blocks.Account.Used(budget.Connections) == 1<<30/body.PlentyPart
	})
}

// TestBodiesOfAllSizes checks bodies whose sizes are close to the steps in which they are read,
// with Openers that accept and that reject announcements of unread bytes.
func TestBodiesOfAllSizes(t *testing.T) {
	sees := Model("sees", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 1")
	sees.Infer = func(_ context.Context, r *infer.Request, send infer.Sender) error {
		in := &r.Inputs[0]
		for i, b := range in.Data {
			if b != byte(i*7) {
				t.Errorf("byte %d of %d is %d, want %d", i, len(in.Data), b, byte(i*7))
				break
			}
		}
		if len(in.Data) > body.FirstStep && in.Memory == nil {
			t.Errorf("%d bytes lie on the heap", len(in.Data))
		}
		send(&infer.Response{Model: "sees", Version: 1, Final: true})
		return nil
	}
	s := StartHTTP(t, rest.Config{MaxInputBytes: 8 << 20}, servertest.NewCore(sees))
	for _, size := range []int{0, 1, 4096, 4097, body.FirstStep - 1, body.FirstStep, body.FirstStep + 1, 8*body.FirstStep - 1, 8 * body.FirstStep, 8*body.FirstStep + 1, 5 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7)
		}
		head := binaryInput(size)
		whole := head + string(data)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = io.WriteString(z, whole)
		_ = z.Close()
		for _, unproven := range []bool{false, true} {
			s.Blocks.Unproven.Store(unproven)
			for name, text := range map[string]string{
				"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(whole), whole),
				"chunked": "Transfer-Encoding: chunked\r\n\r\n" + inChunks(whole, 1<<20),
				"gzip":    fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.String()),
			} {
				c := s.Connect(t)
				c.Send(fmt.Sprintf("POST /v2/models/sees/infer HTTP/1.1\r\nHost: x\r\n%s: %d\r\n%s", inference.HeaderLengthName, len(head), text))
				if got := c.Receive("POST"); got.Status != 200 {
					t.Errorf("%s of %d bytes, unproven %t: got status %d, %.200s", name, size, unproven, got.Status, got.Body)
				}
				_ = c.Close()
			}
		}
	}
}

// TestBehindARawBodyIsRoom checks that a raw body has room for the length of a BYTES element, and
// that this room is charged.
func TestBehindARawBodyIsRoom(t *testing.T) {
	raw := Model("raw", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	s := StartHTTP(t, rest.Config{MaxInputBytes: 300_000}, servertest.NewCore(raw))
	raw.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		data := req.Inputs[0].Data
		n := len(data) + infer.RawPrefix
		if cap(data) < n || s.Blocks.Account.Total() < int64(n) {
			return infer.Errorf(infer.Internal, "room for %d bytes, %d charged", cap(data)-len(data), s.Blocks.Account.Total())
		}
		copy(data[len(data):n], "room")
		return raw.Echo(ctx, req, send)
	}
	const head = "POST /v2/models/raw/infer HTTP/1.1\r\nHost: x\r\n" + inference.HeaderLengthName + ": 0\r\n"
	for _, size := range []int{0, 5, server.InlineTensor - infer.RawPrefix, server.InlineTensor, body.FirstStep, 2*body.FirstStep - 2, 300_000} {
		data := strings.Repeat("x", size)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = io.WriteString(z, data)
		_ = z.Close()
		for name, text := range map[string]string{
			"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, data),
			"chunked": "Transfer-Encoding: chunked\r\n\r\n" + inChunks(data, 1<<20),
			"gzip":    fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.String()),
		} {
			c := s.Connect(t)
			c.Send(head + text)
			if got := c.Receive("POST"); got.Status != 200 || !strings.HasSuffix(got.Body, fmt.Sprintf(`"parameters":{"binary_data_size":%d}}]}%s`, size, data)) {
				t.Errorf("%s of %d bytes: got status %d, %.200s", name, size, got.Status, got.Body)
			}
			_ = c.Close()
		}
	}
	c := s.Connect(t)
	c.Send(head + "Transfer-Encoding: chunked\r\n\r\n9\r\nab")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := c.Receive("POST"); got.Status != 400 || got.Body != ErrorBody("request body ends early or is malformed") {
		t.Errorf("a chunk that ends early: got status %d, %s", got.Status, got.Body)
	}
}

// TestBodyThatOutgrowsTheMemory checks that a body is rejected and its memory released when the
// account is full, and that a body larger than the whole account is rejected at once.
func TestBodyThatOutgrowsTheMemory(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	free := servertest.Leave(s.Blocks.Account, budget.Blocks, 1<<20)
	const size = 3 << 20
	if got := s.Infer(t, "id_uint8", binaryInput(size), strings.Repeat("x", size)); got.Status != 503 || !strings.Contains(got.Body, "bytes for requests are in use") {
		t.Errorf("got %d %.200s, want 503", got.Status, got.Body)
	}
	free()
	Eventually(t, "all is given back", func() bool {
		return s.Blocks.Account.Total() == s.Blocks.Account.Used(budget.Connections) && s.Blocks.Lent.Load() == 0
	})
}
