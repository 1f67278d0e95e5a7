package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hostileClient repeats one harmful action. Any reply of the server is fine, as long as it
// continues.
type hostileClient struct {
	name string
	mean time.Duration // between actions
	act  func(k *soak, ctx context.Context, r *rand.Rand)
}

func (k *soak) hostileClients() []hostileClient {
	return append(amplifiers(), []hostileClient{
		{"invalid UTF-8 over HTTP", 100 * time.Millisecond, invalidText},
		{"malformed heads", 50 * time.Millisecond, malformedHeads},
		{"malformed bodies", 100 * time.Millisecond, malformedBodies},
		{"noise", 200 * time.Millisecond, noise},
		{"huge claims", 500 * time.Millisecond, hugeClaims},
		{"slow bodies", time.Second, slowBodies},
		{"gzip bombs", 2 * time.Second, gzipBombs},
		{"sixteen large bodies at once", 8 * time.Second, largeBodies},
		{"connection floods", 5 * time.Second, connectionFlood},
		{"clients that leave", 100 * time.Millisecond, leave},
		{"answers that are not read", 2 * time.Second, unreadAnswers},
		{"sequences that do not end", 200 * time.Millisecond, abandonSequences},
		{"invalid UTF-8 over gRPC", 100 * time.Millisecond, invalidMessages},
		{"unread streams", 2 * time.Second, unreadStreams},
		{"calls with short deadlines", 50 * time.Millisecond, shortDeadlines},
		{"calls that are reset", 200 * time.Millisecond, resets},
		{"wrong messages", 100 * time.Millisecond, wrongMessages},
		{"noise over HTTP/2", 300 * time.Millisecond, noiseHTTP2},
	}...)
}

// annoy runs a hostile client.
func (k *soak) annoy(ctx context.Context, r *rand.Rand, h hostileClient) {
	for pause(ctx, r, h.mean) {
		h.act(k, ctx, r)
		k.results.event("hostile: " + h.name)
	}
}

// socket is a connection that is closed at the end of the run at the latest.
type socket struct {
	net.Conn
	release func() bool
}

func (s *socket) Close() error {
	s.release()
	return s.Conn.Close()
}

// drop closes the connection without leaving its port in TIME_WAIT.
func (s *socket) drop() {
	if tcp, ok := s.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = s.Close()
}

// dial returns nil if the server rejects the connection.
func dial(ctx context.Context, address string, smallWindow bool) *socket {
	d := net.Dialer{Timeout: 5 * time.Second}
	if smallWindow {
		d.Control = smallBuffers
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	release := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return &socket{c, release}
}

// send writes bytes and reads up to 64 KiB of the reply.
func send(k *soak, ctx context.Context, request []byte) {
	c := dial(ctx, k.server.http, false)
	if c == nil {
		return
	}
	defer c.Close()
	if _, err := c.Write(request); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = c.Read(make([]byte, 64<<10))
}

// post returns a request with a body. The head claims the given length.
func post(model, headers string, claimed int, body string) []byte {
	return fmt.Appendf(nil, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", model, headers, claimed, body)
}

const oneNumber = `"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[1]}]`

func invalidText(k *soak, ctx context.Context, r *rand.Rand) {
	bodies := []string{
		`{"id":"\udc00",` + oneNumber + `}`,
		"{\"id\":\"\xff\"," + oneNumber + `}`,
		"{\"id\":\"\xed\xa0\x80\"," + oneNumber + `}`,
		"{\"parameters\":{\"sequence_id\":\"\xff\",\"sequence_start\":true}," + oneNumber + `}`,
		"{\"parameters\":{\"\xfe\":1}," + oneNumber + `}`,
		"{\"parameters\":{\"a\":\"\xc3\"}," + oneNumber + `}`,
		"{\"inputs\":[{\"name\":\"IN\xff\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1]}]}",
		`{"id":"` + strings.Repeat("i", 40_000) + `",` + oneNumber + `}`,
	}
	model := []string{"asks", "crashes", "sleeps", "direct"}[r.IntN(4)]
	body := bodies[r.IntN(len(bodies))]
	send(k, ctx, post(model, "", len(body), body))
}

func malformedHeads(k *soak, ctx context.Context, r *rand.Rand) {
	heads := []string{
		"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chun\u212aed\r\n\r\n0\r\n\r\n",
		"GET http://h?/v2 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET x?://h/v2 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v2 HTTP/1.1\r\n\r\n",
		"GET /v2 HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"GET /v2 HTTP/9.9\r\nHost: x\r\n\r\n",
		"GET /v2/models/" + strings.Repeat("%2e%2e/", 500) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\n",
		"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST /v2/models/asks/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"POST /v2/models/asks/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n",
		"POST /v2/models/asks/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"POST /v2/models/asks/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", 70_000) + "0\r\n\r\n",
		"\r\n\r\n\r\n", "\x00\x01\x02", "GET", strings.Repeat("A", 20_000),
	}
	send(k, ctx, []byte(heads[r.IntN(len(heads))]))
}

func malformedBodies(k *soak, ctx context.Context, r *rand.Rand) {
	bodies := []string{
		strings.Repeat("[", 100_000),
		`{"inputs":` + strings.Repeat(`[{"a":`, 1000),
		`{"inputs":[{"name":"IN","datatype":"INT32","shape":[4611686018427387904,8],"data":[1]}]}`,
		`{"inputs":[{"name":"IN","datatype":"INT32","shape":[268435456],"data":[1]}]}`,
		`{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":[1]}]}`,
		`{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"parameters":{"binary_data_size":-1}}]}`,
		`{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"parameters":{"binary_data_size":9223372036854775807}}]}`,
		`{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[` + strings.Repeat("1,", 200_000) + `1]}]}`,
		`{` + strings.Repeat(`"id":"x",`, 50_000) + oneNumber + `}`,
		`{"parameters":{"sequence_id":18446744073709551615,"sequence_end":true},` + oneNumber + `}`,
		`{"parameters":{"timeout":-1,"priority":-5},` + oneNumber + `}`,
		`{"outputs":[{"name":"OUT","parameters":{"classification":-7}}],` + oneNumber + `}`,
		`{"outputs":[{"name":"NONE"}],` + oneNumber + `}`, ``, `null`, `{}`,
	}
	body := bodies[r.IntN(len(bodies))]
	headers := []string{"", "Inference-Header-Content-Length: 7\r\n", "Inference-Header-Content-Length: 99999999999\r\n",
		"Content-Encoding: gzip\r\n", "Content-Encoding: deflate\r\n"}[r.IntN(5)]
	send(k, ctx, post(append(steadyModels, "none", "../x", "%00")[r.IntN(len(steadyModels)+3)], headers, len(body), body))
}

func noise(k *soak, ctx context.Context, r *rand.Rand) {
	send(k, ctx, randomBytes(r, 1+r.IntN(4000)))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// hugeClaims announces a body that never arrives.
func hugeClaims(k *soak, ctx context.Context, r *rand.Rand) {
	c := dial(ctx, k.server.http, false)
	if c == nil {
		return
	}
	_, _ = c.Write(post("identity", "", 100<<20+r.IntN(200<<20), "{"))
	go func() { // it holds its claim while others are made
		defer c.Close()
		wait(ctx, 4*time.Second)
	}()
}

// slowBodies sends a body byte by byte.
func slowBodies(k *soak, ctx context.Context, r *rand.Rand) {
	c := dial(ctx, k.server.http, false)
	if c == nil {
		return
	}
	_, _ = c.Write(post("identity", "", 1<<20, ""))
	go func() {
		defer c.Close()
		for range 100 {
			if _, err := c.Write([]byte("x")); err != nil || !wait(ctx, 100*time.Millisecond) {
				return
			}
		}
	}()
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// bomb expands to 1 GiB of blanks.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	blanks := bytes.Repeat([]byte(" "), 1<<20)
	for range 1 << 10 {
		_, _ = w.Write(blanks) // a buffer takes everything
	}
	_ = w.Close()
	return b.Bytes()
})

func gzipBombs(k *soak, ctx context.Context, _ *rand.Rand) {
	send(k, ctx, post("identity", "Content-Encoding: gzip\r\n", len(bomb()), string(bomb())))
}

// largeBodies sends sixteen bodies of 24 MiB at the same time.
func largeBodies(k *soak, ctx context.Context, _ *rand.Rand) {
	const size = 24 << 20
	json := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%[1]d}}],"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}`, size)
	head := post("identity", fmt.Sprintf("Inference-Header-Content-Length: %d\r\n", len(json)), len(json)+size, json)
	zeros := make([]byte, 1<<20)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			c := dial(ctx, k.server.http, false)
			if c == nil {
				return
			}
			defer c.Close()
			if _, err := c.Write(head); err != nil {
				return
			}
			for range size >> 20 {
				if _, err := c.Write(zeros); err != nil {
					return
				}
			}
			_, _ = io.CopyN(io.Discard, c, size)
		})
	}
	all.Wait()
}

// connectionFlood opens more connections than the server has descriptors, and leaves them idle.
func connectionFlood(k *soak, ctx context.Context, r *rand.Rand) {
	address := []string{k.server.http, k.server.grpc}[r.IntN(2)]
	var all []*socket
	for range 1200 {
		c := dial(ctx, address, false)
		if c == nil {
			break
		}
		all = append(all, c)
	}
	wait(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
	for _, c := range all {
		c.drop()
	}
}

// leave disconnects while its request waits or executes.
func leave(k *soak, ctx context.Context, r *rand.Rand) {
	c := dial(ctx, k.server.http, false)
	if c == nil {
		return
	}
	defer c.Close()
	body := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[%d]}]}`, r.IntN(400))
	request := post("sleeps", "", len(body), body)
	if r.IntN(4) == 0 {
		request = request[:r.IntN(len(request))]
	}
	_, _ = c.Write(request)
	wait(ctx, time.Duration(r.IntN(50))*time.Millisecond)
}

// unreadAnswers requests 8 MiB and does not read them.
func unreadAnswers(k *soak, ctx context.Context, r *rand.Rand) {
	c := dial(ctx, k.server.http, true)
	if c == nil {
		return
	}
	const size = 8 << 20
	json := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%[1]d}}],"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}`, size)
	_, _ = c.Write(post("identity", fmt.Sprintf("Inference-Header-Content-Length: %d\r\n", len(json)), len(json)+size, json))
	_, _ = c.Write(make([]byte, size))
	span := time.Duration(r.IntN(6000)) * time.Millisecond
	go func() {
		defer c.Close()
		wait(ctx, span)
	}()
}

// abandonSequences begins sequences, sometimes sends more, and disappears.
func abandonSequences(k *soak, ctx context.Context, r *rand.Rand) {
	body := fmt.Sprintf(`{"parameters":{"sequence_id":%d,"sequence_start":%v},"inputs":[{"name":"IN","datatype":"INT32","shape":[1,1],"data":[1]}]}`,
		r.Uint64(), r.IntN(3) > 0)
	send(k, ctx, post([]string{"direct", "oldest"}[r.IntN(2)], "", len(body), body))
}

// smallBuffers gives a socket whose owner does not read a small receive buffer.
func smallBuffers(_, _ string, c syscall.RawConn) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	}), err)
}
