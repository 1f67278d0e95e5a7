package grpc_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestRestrictedMethodsNeedTheKey checks that methods in restricted groups require the configured
// header.
func TestRestrictedMethodsNeedTheKey(t *testing.T) {
	s := start(t, grpcserver.Config{Restricted: []server.Restriction{
		{Groups: []string{"health", "inference"}, Header: "Key", Value: "secret"},
		{Groups: []string{"logging"}, Header: "other", Value: "x=y "},
	}}, nil)
	const refusal = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
	rpcs := map[string]func(ctx context.Context) error{
		"live": func(ctx context.Context) error {
			_, err := s.client.ServerLive(ctx, &kserve.ServerLiveRequest{})
			return err
		},
		"infer": func(ctx context.Context) error {
			_, err := s.client.ModelInfer(ctx, int32s("id_int32", 9000))
			return err
		},
		"stream": func(ctx context.Context) error {
			stream := s.open(t, ctx)
			_ = stream.CloseSend()
			if _, err := stream.Recv(); err != io.EOF {
				return err
			}
			return nil
		},
	}
	for name, rpc := range rpcs {
		for _, keys := range [][]string{nil, {"triton-grpc-protocol-key", "wrong"}, {"key", "secret"}} {
			if err := rpc(rpcContext(t, keys...)); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != refusal {
				t.Errorf("%s with %q: got %v", name, keys, err)
			}
		}
		if err := rpc(rpcContext(t, "triton-grpc-protocol-Key", "secret")); err != nil {
			t.Errorf("%s with the key: %v", name, err)
		}
	}
	_, err := s.client.LogSettings(rpcContext(t, "triton-grpc-protocol-key", "secret"), &kserve.LogSettingsRequest{})
	wantStatus(t, err, codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-other'")
	if _, err := s.client.ServerMetadata(rpcContext(t), &kserve.ServerMetadataRequest{}); err != nil {
		t.Errorf("a group that is open: %v", err)
	}
}

// TestReservedHeaderIsRefusedInTurn checks that forwarded metadata must not have a reserved name,
// and that earlier errors in Triton's order take precedence.
func TestReservedHeaderIsRefusedInTurn(t *testing.T) {
	s := start(t, grpcserver.Config{ForwardPattern: "t"}, nil)
	const refusal = "Header 'timeout' is reserved for Triton usage and cannot be forwarded."
	bad := withID(int32s("id_int32", 1), "", "timeout", "text")
	missing := int32s("id_int32", 1)
	missing.RawInputContents = nil
	for _, test := range []struct {
		q    *kserve.ModelInferRequest
		code codes.Code
		text string
	}{
		{int32s("id_int32", 1), codes.InvalidArgument, refusal},
		{int32s("none", 1), codes.NotFound, "Request for unknown model: 'none' is not found"},
		{bad, codes.InvalidArgument, "invalid value type for 'timeout' parameter, expected int64_param."},
		{missing, codes.InvalidArgument, refusal},
	} {
		_, err := s.client.ModelInfer(rpcContext(t, "timeout", "1"), test.q)
		wantStatus(t, err, test.code, test.text)
		stream := s.open(t, rpcContext(t, "timeout", "1"))
		sendAll(t, stream, test.q)
		if got, end := receiveAll(t, stream); !slices.Equal(got, []string{"/  -: " + test.text}) || end != io.EOF {
			t.Errorf("stream: got %q and %v", got, end)
		}
	}
}

// TestCompressionWorksBothWays sends and receives compressed messages with each method and level.
func TestCompressionWorksBothWays(t *testing.T) {
	for _, level := range []string{"none", "low", "medium", "high"} {
		s := start(t, grpcserver.Config{Compression: level}, nil)
		for _, method := range []string{"", "gzip", "deflate"} {
			var options []grpc.CallOption
			if method != "" {
				options = append(options, grpc.UseCompressor(method))
			}
			q := rawRequest("id_uint8", "UINT8", []int64{200000}, bytes.Repeat([]byte("abcdefgh"), 25000))
			var header metadata.MD
			got, err := s.client.ModelInfer(rpcContext(t), q, append(options, grpc.Header(&header))...)
			if err != nil || !bytes.Equal(got.RawOutputContents[0], q.RawInputContents[0]) {
				t.Errorf("%s in %q: got error %v", level, method, err)
			}
			stream := s.open(t, rpcContext(t), options...)
			sendAll(t, stream, q, q)
			if got, end := receiveAll(t, stream); !slices.Equal(got, []string{"id_uint8/1  true 200000", "id_uint8/1  true 200000"}) || end != io.EOF {
				t.Errorf("%s in %q: stream got %q and %v", level, method, got, end)
			}
			if a, err := s.client.ServerLive(rpcContext(t), &kserve.ServerLiveRequest{}, options...); err != nil || !a.Live {
				t.Errorf("%s in %q: live: %v and error %v", level, method, a, err)
			}
		}
	}
}

// TestMessageLimitCountsDecompressedBytes checks that a message above the limit is rejected,
// whether it is that large on the wire or only after decompression.
func TestMessageLimitCountsDecompressedBytes(t *testing.T) {
	s := start(t, grpcserver.Config{MaxMessageBytes: 100 << 10}, nil)
	_, err := s.client.ModelInfer(rpcContext(t), int32s("id_int32", 25000))
	if err != nil {
		t.Errorf("below the limit: %v", err)
	}
	_, err = s.client.ModelInfer(rpcContext(t), int32s("id_int32", 26000))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("above the limit: %v", err)
	}
	bomb := rawRequest("id_uint8", "UINT8", []int64{64 << 20}, make([]byte, 64<<20))
	_, err = s.client.ModelInfer(rpcContext(t), bomb, grpc.UseCompressor("gzip"))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that expands beyond the limit: %v", err)
	}
}

// TestWithoutMemoryOneRequestIsRefused checks that a request without memory fails alone: other
// requests of the same stream succeed.
func TestWithoutMemoryOneRequestIsRefused(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	defer servertest.Leave(s.blocks.Account, budget.Blocks, 1<<20)()
	_, err := s.client.ModelInfer(rpcContext(t), int32s("id_int32", 500000))
	if status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(status.Convert(err).Message(), "request needs 2000000 bytes") {
		t.Errorf("got %v, want it refused", err)
	}
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, withID(int32s("id_int32", 1), "a"), withID(int32s("id_int32", 500000), "b"), withID(int32s("id_int32", 100000), "c"))
	got, end := receiveAll(t, stream)
	if len(got) != 3 || !strings.HasPrefix(got[1], "/ b -: request needs") || got[0] != "id_int32/1 a true 4" || got[2] != "id_int32/1 c true 400000" || end != io.EOF {
		t.Errorf("got %q and %v", got, end)
	}

	s.blocks.Fail = infer.Errorf(infer.Unavailable, "no block is left")
	_, err = s.client.ModelInfer(rpcContext(t), int32s("id_int32", 100000))
	wantStatus(t, err, codes.ResourceExhausted, "no block is left")
	s.blocks.Fail = nil
	if _, err := s.client.ModelInfer(rpcContext(t), int32s("id_int32", 100000)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestConnectionLimitClosesNewcomers checks that new connections beyond the limit are closed.
func TestConnectionLimitClosesNewcomers(t *testing.T) {
	s := start(t, grpcserver.Config{MaxConnections: 1, Connections: &connections.Budget{Settle: 50 * time.Millisecond}}, nil)
	stream := s.open(t, rpcContext(t)) // keeps its connection busy
	sendAll(t, stream, withID(int32s("id_int32", 1), "a"))
	receive(t, stream)
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(servertest.Patience))
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
		t.Errorf("the second connection got %d bytes and error %v, want it closed", n, err)
	}
	if _, end := receiveAll(t, stream); end != io.EOF {
		t.Errorf("the stream ends with %v", end)
	}
	// An idle connection is evicted in favor of a new one, and its client reconnects.
	for range 2 {
		testkit.Eventually(t, servertest.Patience, func() bool {
			_, client := s.dial(t)
			_, err := client.ServerLive(rpcContext(t), &kserve.ServerLiveRequest{})
			return err == nil
		})
	}
}

// TestStreamReadsNoMoreThanMayBeInFlight checks that a stream stops reading requests while the
// maximum number is in flight.
func TestStreamReadsNoMoreThanMayBeInFlight(t *testing.T) {
	gate := make(chan struct{})
	var inside, most atomic.Int64
	slow := decoupledModel("slow", func(_ context.Context, req *infer.Request, send infer.Sender) error {
		n := inside.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-gate
		inside.Add(-1)
		send(&infer.Response{Model: "slow", Version: 1, ID: req.ID, Final: true})
		return nil
	})
	s := start(t, grpcserver.Config{MaxStreamRequests: 3}, servertest.NewCore(slow))
	stream := s.open(t, rpcContext(t))
	for i := range 10 {
		sendAll(t, stream, withID(int32s("slow", 2000), fmt.Sprint(i)))
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return inside.Load() == 3 })
	close(gate)
	got, end := receiveAll(t, stream)
	if len(got) != 10 || end != io.EOF || most.Load() > 3 {
		t.Errorf("got %q and %v, with %d at once", got, end, most.Load())
	}
}

// TestConfigErrorsNameTheSetting checks the errors for invalid settings.
func TestConfigErrorsNameTheSetting(t *testing.T) {
	for want, cfg := range map[string]grpcserver.Config{
		"Port is 65536, want 0 to 65535":                                            {Port: 65536},
		"MaxCalls is -1, want 1 to 2147483647, or 0 for the default":                {MaxCalls: -1},
		"MaxMessageBytes is 2147483648, want 1 to 2147483647, or 0 for the default": {MaxMessageBytes: 1 << 31},
		`Compression is "best", want one of ["none" "low" "medium" "high"]`:         {Compression: "best"},
		"TLS is enabled, want a certificate and a key":                              {TLS: grpcserver.TLS{Enabled: true}},
		"TLS is mutual, want a root certificate":                                    {TLS: grpcserver.TLS{Enabled: true, Mutual: true, CertFile: "c", KeyFile: "k"}},
		"Restricted: unknown restricted api 'x' ":                                   {Restricted: []server.Restriction{{Groups: []string{"x"}}}},
		"ForwardPattern: error parsing regexp: missing closing ): `(?i)(`":          {ForwardPattern: "("},
	} {
		if _, err := grpcserver.New(cfg, server.Parts{}, zerolog.Nop()); err == nil || err.Error() != want {
			t.Errorf("%+v: got %v, want %s", cfg, err, want)
		}
	}
}

// TestGarbageEndsOneConnection sends bytes that are not HTTP/2, or a partial frame, and checks that
// only that connection ends.
func TestGarbageEndsOneConnection(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x01\x00", strings.Repeat("\xff", 1000)} {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(servertest.Patience))
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	if _, err := s.client.ServerLive(rpcContext(t), &kserve.ServerLiveRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestEntriesCountAgainstTheLimit checks that a message that would exceed the limit once decoded is
// rejected.
func TestEntriesCountAgainstTheLimit(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	many := bytes.Repeat([]byte{0x0a, 0}, 8<<20) // entries without key and value
	err := s.conn.Invoke(rpcContext(t), service+"LogSettings", many, &kserve.LogSettingsResponse{}, grpc.ForceCodec(rawCodec{}))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want it refused", err)
	}
}
