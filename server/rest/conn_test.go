package rest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/servertest"
)

const liveRequest = "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"

func TestKeepAliveFollowsVersionAndHeader(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	for _, tt := range []struct {
		name, version, connection string
		want                      string // of the reply's Connection, which may also have close
		closes                    bool
	}{
		{"1.1", "1.1", "", "", false},
		{"1.1 close", "1.1", "Connection: foo, Close\r\n", "", true},
		{"1.0", "1.0", "", "", true},
		{"1.0 keep-alive", "1.0", "Connection: Keep-Alive\r\n", "keep-alive", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.Connect(t)
			for range 2 {
				c.Send("GET /v2 HTTP/" + tt.version + "\r\nHost: h\r\n" + tt.connection + "\r\n")
				line, err := c.R.Peek(len("HTTP/1.x"))
				if err != nil || string(line) != "HTTP/"+tt.version {
					t.Fatalf("reply begins with %q (%v), want the request's version", line, err)
				}
				got := c.Receive("GET")
				if got.Status != 200 || got.Header.Get("Content-Length") == "" || got.Header.Get("Date") != "" || got.Header.Get("Server") != "" {
					t.Fatalf("got %s, headers %v", got, got.Header)
				}
				if h := got.Header.Get("Connection"); h != tt.want || got.Closes != tt.closes {
					t.Errorf("Connection: got %q, closes %v; want %q, %v", h, got.Closes, tt.want, tt.closes)
				}
				if tt.closes {
					c.WantEnd()
					return
				}
			}
		})
	}
}

// TestPipelinedRequestsAreAnsweredInOrder sends several requests at once, some with bodies, split
// at every byte, and checks the order of the replies.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	json := oneInput("INT32", "[2]", `"data":[1,2]`)
	requests := liveRequest + Text("POST", "/v2/models/id_int32/infer", json) + "\r\n" +
		"POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks(json, 20) +
		Text("POST", "/v2/nothing", "a body that nobody reads") + liveRequest
	for at := range len(requests) {
		c := s.Connect(t)
		c.Send(requests[:at])
		c.Send(requests[at:])
		for i, want := range []int{200, 200, 200, 404, 200} {
			if got := c.Receive("GET"); got.Status != want {
				t.Fatalf("cut at %d, request %d: got %s, want %d", at, i, got, want)
			}
		}
		_ = c.Close()
	}
}

// TestEmptyRepliesKeepTheConnection checks that an empty reply has a length, by which an HTTP/1.0
// client detects its end.
func TestEmptyRepliesKeepTheConnection(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	c := s.Connect(t)
	for range 2 {
		c.Send("GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
		if got := c.Receive("GET"); got.Status != 200 || got.Header.Get("Content-Length") != "0" {
			t.Errorf("got %s, headers %v", got, got.Header)
		}
	}
	c.Send("GET /v2/health/live HTTP/1.0\r\n\r\n")
	if got := c.Receive("GET"); got.Status != 200 || got.Header.Get("Content-Length") != "" {
		t.Errorf("got %s, headers %v", got, got.Header)
	}
	c.WantEnd()
}

func TestExpectContinueIsAnsweredFirst(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	json := oneInput("INT32", "[2]", `"data":[1,2]`)
	c := s.Connect(t)
	request := Text("POST", "/v2/models/id_int32/infer", json, "Expect: 100-continue")
	c.Send(strings.TrimSuffix(request, json))
	if got := c.Receive("POST"); got.Status != 100 {
		t.Fatalf("got %s, want 100", got)
	}
	c.Send(json)
	if got := c.Receive("POST"); got.Status != 200 {
		t.Fatalf("got %s, want 200", got)
	}
	// A client whose request is rejected does not get 100 Continue.
	request = Text("POST", "/v2/models/unknown/infer", json, "Expect: 100-continue")
	c.Send(strings.TrimSuffix(request, json))
	if got := c.Receive("POST"); got.Status != 404 || !got.Closes {
		t.Fatalf("got %s, closes %v; want 404 and the connection's end", got, got.Closes)
	}
}

func TestChunkedBodiesAreCheckedAndRead(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	const head = "POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
	malformed := "400 application/json " + ErrorBody("request body ends early or is malformed")
	for _, tt := range []struct {
		name, body string
		want       string
		open       bool
	}{
		{"extension", "2;a=b\r\n{}\r\n0\r\n\r\n", "200 application/json [", true},
		{"trailer", "2\r\n{}\r\n0\r\nA: b\r\n\r\n", "200 application/json [", true},
		{"size in capitals", "0A\r\n{\"ready\":f\r\n4\r\nalse\r\n1\r\n}\r\n000\r\n\r\n", "200 application/json [", true},
		{"no size", "\r\n", malformed, false},
		{"no number", "zz\r\n", malformed, false},
		{"negative", "-1\r\n", malformed, false},
		{"overflow", "8000000000000000\r\n", malformed, false},
		{"wrong end", "2\r\n{}x\r\n", malformed, false},
		{"long line", "2;" + strings.Repeat("a", 3000) + "\r\n{}\r\n0\r\n\r\n", malformed, false},
		{"long trailers", "2\r\n{}\r\n0\r\n" + strings.Repeat("A: b\r\n", 300) + "\r\n", malformed, false},
		{"too many", inChunks(strings.Repeat(" ", 65537), 1), "400 application/json " +
			ErrorBody("Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks."), false},
	} {
		c := s.Connect(t)
		go func() { _, _ = io.WriteString(c.Conn, head+tt.body) }() // the server may not read it
		got := c.Receive("POST")
		if !strings.HasPrefix(got.String(), tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if got.Closes == tt.open {
			t.Errorf("%s: the connection stays open: got %v, want %v", tt.name, !got.Closes, tt.open)
		}
		_ = c.Close()
	}
}

// TestClientLeavesInBody closes connections in the middle of all kinds of bodies. StartHTTP checks
// that the memory of the requests is released.
func TestClientLeavesInBody(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	head := oneInput("UINT8", "[1000000]", `"parameters":{"binary_data_size":1000000}`)
	length := fmt.Sprintf("%s: %d\r\n", inference.HeaderLengthName, len(head))
	for _, request := range []string{
		"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\n" + length + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(head)+1000000) + head + strings.Repeat("x", 99999),
		"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\n" + length + "Transfer-Encoding: chunked\r\n\r\n" + strings.TrimSuffix(inChunks(head+strings.Repeat("x", 99999), 1000), "0\r\n\r\n"),
		"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n" + head,
		"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\n" + length + "Content-Length: 100\r\n\r\n" + head[:50],
		"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\n" + inference.HeaderLengthName + ": 0\r\nContent-Length: 500000\r\n\r\n" + head,
		"POST /v2/models/none/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n" + head,
		"POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n{",
	} {
		c := s.Connect(t)
		c.Send(request)
		_ = c.Close()
	}
	Eventually(t, "all connections have ended", func() bool { return s.Connections() == 0 })
	if n := s.Core.Served.Load(); n != 0 {
		t.Errorf("%d inferences were run, want none", n)
	}
}

// TestClientLeavesInInference checks that the context of a request ends when its client closes the
// connection while the model works.
func TestClientLeavesInInference(t *testing.T) {
	began, cause := make(chan struct{}), make(chan error, 1)
	waits := Model("waits", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	waits.Infer = func(ctx context.Context, _ *infer.Request, _ infer.Sender) error {
		close(began)
		<-ctx.Done()
		cause <- ctx.Err()
		return infer.Errorf(infer.Cancelled, "")
	}
	s := StartHTTP(t, rest.Config{}, servertest.NewCore(waits))
	c := s.Connect(t)
	c.Send(string(binaryRequest("waits", 100_000)))
	<-began
	_ = c.Close()
	select {
	case err := <-cause:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("context: got %v, want it canceled", err)
		}
	case <-time.After(Patience):
		t.Fatalf("the request's context is still alive %v after its client left", Patience)
	}
}

// TestSlowInferencesKeepTheirClient checks that a waiting client is not mistaken for a disconnected
// one, and that its connection remains usable.
func TestSlowInferencesKeepTheirClient(t *testing.T) {
	slow := Model("slow", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	slow.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		select {
		case <-ctx.Done():
			return infer.Errorf(infer.Cancelled, "the context has ended")
		case <-time.After(20 * time.Millisecond): // the server has checked the client meanwhile
			return slow.Echo(ctx, req, send)
		}
	}
	s := StartHTTP(t, rest.Config{}, servertest.NewCore(slow))
	c := s.Connect(t)
	for i := range 5 {
		c.Send(string(binaryRequest("slow", 10_000)))
		if i == 3 {
			c.Send(liveRequest) // while the inference runs
		}
		if got := c.Receive("POST"); got.Status != 200 {
			t.Fatalf("got %s, want 200", got)
		}
		if i == 3 {
			if got := c.Receive("GET"); got.Status != 200 {
				t.Fatalf("got %s, want 200", got)
			}
		}
	}
}

// TestSlowClientsAreDisconnected checks that a client that stops sending is disconnected by the
// timeout for that part of a request.
func TestSlowClientsAreDisconnected(t *testing.T) {
	const short = 200 * time.Millisecond
	head := oneInput("UINT8", "[1000000]", `"parameters":{"binary_data_size":1000000}`)
	large := fmt.Sprintf("POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\n%s: %d\r\nContent-Length: %d\r\n\r\n%s", inference.HeaderLengthName, len(head), len(head)+1000000, head)
	for _, tt := range []struct {
		name, request, want string
		cfg                 rest.Config
	}{
		{"nothing", "", "", rest.Config{Config: http1.Config{IdleTimeout: short}}},
		{"half a head", "POST /v2/models/id_", "", rest.Config{Config: http1.Config{HeaderTimeout: short}}},
		{"no body", "POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n", "request body came too slowly", rest.Config{Config: http1.Config{HeaderTimeout: short}}},
		{"half a large body", large + strings.Repeat("x", 500_000), "request body came too slowly", rest.Config{Config: http1.Config{BodyGrace: 5 * short, BodyBytesPerSecond: 1 << 20}}},
	} {
		s := StartHTTP(t, tt.cfg, nil)
		c := s.Connect(t)
		c.Send(tt.request)
		if tt.want == "" {
			c.WantEnd()
			continue
		}
		if got := c.Receive("POST"); got.Status != 400 || !strings.Contains(got.Body, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		c.WantEnd()
	}
}

// TestClientDoesNotRead checks that the server closes the connection of a client that does not read
// its reply, and releases the reply's memory.
func TestClientDoesNotRead(t *testing.T) {
	s := StartHTTP(t, rest.Config{Config: http1.Config{WriteTimeout: 100 * time.Millisecond}}, nil)
	c := s.Connect(t)
	c.Send(string(binaryRequest("id_uint8", 32<<20)))
	Eventually(t, "the connection has ended", func() bool { return s.Connections() == 0 })
	if n := s.Blocks.Lent.Load(); n != 0 {
		t.Errorf("%d blocks are lent, want none", n)
	}
}

// TestTooManyConnectionsCloseTheIdlest checks that the connection that has been idle for longest
// makes room for a new one, and that the new one gets an error if all are busy.
func TestTooManyConnectionsCloseTheIdlest(t *testing.T) {
	began, release := make(chan struct{}, 2), make(chan struct{})
	waits := Model("waits", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	waits.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		began <- struct{}{}
		<-release
		return waits.Echo(ctx, req, send)
	}
	s := StartHTTP(t, rest.Config{Config: http1.Config{MaxConnections: 2}}, servertest.NewCore(waits))
	first := s.Connect(t)
	first.Send(liveRequest)
	first.Receive("GET")
	// The client of the first connection may be about to send its next request. The second
	// connection, which has not sent a request yet, makes room.
	second := s.Connect(t)
	third := s.Connect(t)
	third.Send(liveRequest)
	if got := third.Receive("GET"); got.Status != 200 {
		t.Errorf("third connection: got %s, want 200", got)
	}
	second.WantEnd()
	first.Send(string(binaryRequest("waits", 4)))
	third.Send(string(binaryRequest("waits", 4)))
	<-began
	<-began
	fourth := s.Connect(t)
	if got := fourth.Receive("GET"); got.Status != 503 {
		t.Errorf("a connection when all are busy: got %s, want 503", got)
	}
	close(release)
	for _, c := range []*TestConn{first, third} {
		if got := c.Receive("POST"); got.Status != 200 {
			t.Errorf("a busy connection: got %s, want 200", got)
		}
	}
	_ = first.Close()
	Eventually(t, "there is room again", func() bool { return s.Do(t, "GET", "/v2/health/live", "").Status == 200 })
}

// TestHugeContentLengthAllocatesNothing checks that a request that announces a huge body is
// rejected.
func TestHugeContentLengthAllocatesNothing(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	for _, tt := range []struct {
		length string
		want   int
	}{{"2147483648", 400}, {"99999999999999999999999999", 400}, {"2147483647", 400}} {
		c := s.Connect(t)
		c.Send("POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\nContent-Length: " + tt.length + "\r\n\r\n{}")
		if got := c.Receive("POST"); got.Status != tt.want || !got.Closes {
			t.Errorf("%s: got %s, want %d and the connection's end", tt.length, got, tt.want)
		}
	}
}

func TestHeadHasNoBody(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	c := s.Connect(t)
	c.Send("HEAD /v2 HTTP/1.1\r\nHost: h\r\n\r\n" + liveRequest)
	if got := c.Receive("HEAD"); got.Status != 405 || got.Header.Get("Content-Length") != "30" {
		t.Errorf("got %s, want 405", got)
	}
	if got := c.Receive("GET"); got.Status != 200 {
		t.Errorf("got %s, want 200", got)
	}
}

func TestShutdownAnswersRequestsInFlight(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	waits := Model("waits", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	waits.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		close(began)
		<-release
		return waits.Echo(ctx, req, send)
	}
	s := StartHTTP(t, rest.Config{}, servertest.NewCore(waits))
	silent, idle, busy := s.Connect(t), s.Connect(t), s.Connect(t)
	idle.Send(liveRequest)
	idle.Receive("GET")
	busy.Send(string(binaryRequest("waits", 4)))
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	idle.WantEnd()
	silent.WantEnd()
	if _, err := net.Dial("tcp", s.Addr); err == nil {
		t.Error("a new connection is accepted after the end of Run's context")
	}
	close(release)
	if got := busy.Receive("POST"); got.Status != 200 || !got.Closes {
		t.Errorf("request in flight: got %s, closes %v; want 200 and the connection's end", got, got.Closes)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

// TestShutdownWithStuckModel checks that Run returns after ExitTimeout although a model returns
// only when its context ends.
func TestShutdownWithStuckModel(t *testing.T) {
	began := make(chan struct{})
	stuck := Model("stuck", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	stuck.Infer = func(ctx context.Context, _ *infer.Request, _ infer.Sender) error {
		close(began)
		<-ctx.Done()
		return infer.Errorf(infer.Cancelled, "")
	}
	s := StartHTTP(t, rest.Config{Config: http1.Config{ExitTimeout: 50 * time.Millisecond}}, servertest.NewCore(stuck))
	c := s.Connect(t)
	c.Send(string(binaryRequest("stuck", 4)))
	<-began
	if err := s.Stop(); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}
