package grpc_test

import (
	"bytes"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server/servertest"
)

// rawClient sends arbitrary HTTP/2 frames. It acknowledges nothing, and reads only after a call of
// read.
type rawClient struct {
	net.Conn
	*http2.Framer
	t       testing.TB
	next    uint32 // stream
	head    bytes.Buffer
	encoder *hpack.Encoder
	ended   atomic.Int64 // streams that the server has ended
}

func (s *testServer) raw(t testing.TB, settings ...http2.Setting) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawClient{Conn: conn, Framer: http2.NewFramer(conn, conn), t: t, next: 1}
	c.encoder = hpack.NewEncoder(&c.head)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c.must(c.WriteSettings(settings...))
	c.must(c.WriteWindowUpdate(0, 1<<30))
	return c
}

func (c *rawClient) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// open begins a call and returns its stream.
func (c *rawClient) open(path string, more ...string) uint32 {
	c.t.Helper()
	c.head.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "x",
		"content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		c.must(c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	id := c.next
	c.next += 2
	block := c.head.Bytes()
	first := min(len(block), 16<<10)
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:first], EndHeaders: first == len(block)}))
	for block = block[first:]; len(block) > 0; {
		n := min(len(block), 16<<10)
		c.must(c.WriteContinuation(id, n == len(block), block[:n]))
		block = block[n:]
	}
	return id
}

// send sends the beginning of a message whose announced length is size. It ends the stream if the
// message is complete.
func (c *rawClient) send(id uint32, size int, body []byte) {
	c.t.Helper()
	whole := size == len(body)
	body = append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, body...)
	for len(body) > 16<<10 {
		c.must(c.WriteData(id, false, body[:16<<10]))
		body = body[16<<10:]
	}
	c.must(c.WriteData(id, whole, body))
}

// settled reads until the server has acknowledged the client's settings. From then on it writes
// nothing by itself.
func (c *rawClient) settled() {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		c.must(err)
		if settings, ok := f.(*http2.SettingsFrame); ok && settings.IsAck() {
			return
		}
	}
}

// read reads the server's frames until the connection ends.
func (c *rawClient) read() {
	go func() {
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
				c.ended.Add(1)
			}
		}
	}()
}

// status waits for the end of a stream and returns its status and text, or the code with which the
// server has reset it.
func (c *rawClient) status(id uint32) string {
	c.t.Helper()
	c.must(c.SetReadDeadline(time.Now().Add(servertest.Patience)))
	if c.ReadMetaHeaders == nil {
		c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	}
	for {
		f, err := c.ReadFrame()
		c.must(err)
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID != id || !f.StreamEnded() {
				continue
			}
			got := map[string]string{}
			for _, field := range f.RegularFields() {
				got[field.Name] = field.Value
			}
			return got["grpc-status"] + " " + got["grpc-message"]
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return f.ErrCode.String()
			}
		case *http2.GoAwayFrame:
			return "GOAWAY " + f.ErrCode.String()
		}
	}
}

// grown runs f and returns the growth of the heap and stacks, and of the charged memory.
func (s *testServer) grown(f func()) (taken, charged int64) {
	before, was := heapAndStacks(), s.blocks.Account.Total()
	f()
	return heapAndStacks() - before, s.blocks.Account.Total() - was
}

func heapAndStacks() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// held returns the bytes of a kind that all connections hold together.
func (s *testServer) held(k budget.Kind) (n int64) {
	s.blocks.Account.Holders(func(h *budget.Holder) bool {
		n += h.Held(k)
		return true
	})
	return n
}
