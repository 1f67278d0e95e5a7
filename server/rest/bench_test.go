package rest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/nereid-serving/nereid/server/rest"
)

// BenchmarkHTTP sends a binary tensor to an echo model over one loopback connection. It measures
// the front end and a minimal client.
func BenchmarkHTTP(b *testing.B) {
	for _, size := range []int{4, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := StartHTTP(b, rest.Config{}, nil)
			s.Blocks.Reuses = true
			c := s.Dial(b)
			request := binaryRequest("id_uint8", size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			r := bufio.NewReaderSize(c, 4096)
			reply := make([]byte, size+1024)
			for b.Loop() {
				benchExchange(b, c, r, request, reply, size)
			}
		})
	}
}

// BenchmarkHTTPJSON sends and receives JSON tensors.
func BenchmarkHTTPJSON(b *testing.B) {
	for _, n := range []int{1, 16 << 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := StartHTTP(b, rest.Config{}, nil)
			c := s.Dial(b)
			body := fmt.Appendf(nil, `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":[`, n)
			for i := range n {
				if i > 0 {
					body = append(body, ',')
				}
				body = strconv.AppendFloat(body, float64(i)+0.1, 'g', -1, 32)
			}
			body = append(body, "]}]}"...)
			request := append(fmt.Appendf(nil, "POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body)), body...)
			b.SetBytes(int64(4 * n))
			b.ReportAllocs()
			r := bufio.NewReaderSize(c, 4096)
			reply := make([]byte, 1024+32*n)
			for b.Loop() {
				benchExchange(b, c, r, request, reply, 0)
			}
		})
	}
}

// binaryRequest returns tritonclient's request for one UINT8 tensor of size bytes.
func binaryRequest(model string, size int) []byte {
	head := fmt.Sprintf(`{"id":"1","inputs":[{"name":"INPUT0","shape":[%d],"datatype":"UINT8","parameters":{"binary_data_size":%d}}],`+
		`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`, size, size)
	request := fmt.Appendf(nil, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost:8000\r\nInference-Header-Content-Length: %d\r\n"+
		"Content-Length: %d\r\nContent-Type: application/octet-stream\r\n\r\n%s", model, len(head), len(head)+size, head)
	return append(request, make([]byte, size)...)
}

// benchExchange sends one request and reads its reply into the buffer reply.
func benchExchange(b *testing.B, c net.Conn, r *bufio.Reader, request, reply []byte, atLeast int) {
	b.Helper()
	sent := make(chan error, 1)
	if len(request) > 64<<10 {
		go func() {
			_, err := c.Write(request)
			sent <- err
		}()
	} else {
		_, err := c.Write(request)
		sent <- err
	}
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			b.Fatalf("got %s, want 200", line)
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				b.Fatal(err)
			}
		}
		if len(line) == 2 {
			break
		}
	}
	if length < atLeast {
		b.Fatalf("got a body of %d bytes, want at least %d", length, atLeast)
	}
	if _, err := io.ReadFull(r, reply[:length]); err != nil {
		b.Fatal(err)
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
}
