package grpc_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// startSmall is start with the given account configuration.
func startSmall(t *testing.T, cfg grpcserver.Config, config budget.Config) *testServer {
	t.Helper()
	return startWith(t, cfg, nil, func(parts *server.Parts, blocks *servertest.Blocks) {
		blocks.Account = budget.New(config)
		parts.Allocate, parts.Memory = blocks.Allocate, blocks.Account
	})
}

// idle waits until only the given number of connections is charged, without calls.
func (s *testServer) idle(t *testing.T, connections int64) {
	t.Helper()
	if !testkit.Within(servertest.Patience, func() bool { return s.blocks.Account.Total() == connections*grpcserver.ConnCost }) {
		t.Errorf("%d bytes are charged, want %d", s.blocks.Account.Total(), connections*grpcserver.ConnCost)
	}
	for _, kind := range []budget.Kind{budget.Connections, budget.Transport} {
		if held, charged := s.held(kind), s.blocks.Account.Used(kind); held != charged {
			t.Errorf("the connections hold %d bytes of %s, and %d are charged", held, kind, charged)
		}
	}
}

// TestNestedFieldsAreWeighed checks that a small message that would be large once decoded is
// rejected before it is decoded.
func TestNestedFieldsAreWeighed(t *testing.T) {
	s := startSmall(t, grpcserver.Config{}, budget.Config{Limit: 16 << 20})
	setting := func(n int) []byte {
		values := bytes.Repeat([]byte{0x0a, 0}, n)
		entry := protowire.AppendBytes([]byte{0x0a, 1, 'x', 0x12}, values)
		return protowire.AppendBytes([]byte{0x0a}, entry)
	}
	for n, want := range map[int]string{8 << 20: "Received message larger than max (", 500_000: "request needs "} {
		err := s.conn.Invoke(rpcContext(t), service+"TraceSetting", setting(n), &kserve.TraceSettingResponse{},
			grpc.ForceCodec(rawCodec{}), grpc.UseCompressor("gzip"))
		if code := status.Code(err); code != codes.ResourceExhausted && code != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), want) {
			t.Errorf("%d values: got %v, want %s", n, err, want)
		}
	}
	if _, err := s.client.TraceSetting(rpcContext(t), &kserve.TraceSettingRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestSmallMessagesNameTheirFlag checks that each unary method except ModelInfer and
// RepositoryModelLoad accepts a message of 1 MiB and rejects a larger one.
func TestSmallMessagesNameTheirFlag(t *testing.T) {
	s := startSmall(t, grpcserver.Config{}, budget.Config{Limit: 64 << 20})
	message := func(size int) []byte { // an unknown field: its tag and its length take five bytes
		return protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, size-5))
	}
	for _, method := range grpcservice.GRPCInferenceService_ServiceDesc.Methods {
		name := method.MethodName
		if name == "ModelInfer" || name == "RepositoryModelLoad" {
			continue
		}
		for size, refused := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
			b := message(size)
			if len(b) != size {
				t.Fatalf("made %d bytes, want %d", len(b), size)
			}
			err := s.conn.Invoke(rpcContext(t), service+name, b, &kserve.TraceSettingResponse{}, grpc.ForceCodec(rawCodec{}))
			said := fmt.Sprintf("Received message larger than max (%d vs. %d). Use --client-max-small-body-size to increase the limit.", size, 1<<20)
			if got := status.Code(err) == codes.ResourceExhausted && status.Convert(err).Message() == said; got != refused {
				t.Errorf("%s with %d bytes: got error %v, want it refused: %v", name, size, err, refused)
			}
		}
	}
}

// TestHalfOpenCallsAreCharged checks that calls that were opened without a message are charged to
// their connection, and are rejected when the account is full.
func TestHalfOpenCallsAreCharged(t *testing.T) {
	s := startSmall(t, grpcserver.Config{}, budget.Config{Limit: 64 << 20}) // a quarter of it is for the transport
	const room = (16 << 20) / grpcserver.CallCost
	const calls = min(room, grpcserver.MostRefused) * 3 / 4 // of each client; more rejected ones would end it
	for _, method := range []string{"ServerLive", "ModelInfer", "ModelStreamInfer"} {
		var clients []*rawClient
		taken, charged := s.grown(func() {
			for range 2 {
				clients = append(clients, s.raw(t))
			}
			testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Total() == 2*grpcserver.ConnCost })
			for _, c := range clients {
				c.read()
				for range calls {
					c.open(service + method)
				}
			}
			testkit.Eventually(t, servertest.Patience, func() bool { return clients[0].ended.Load()+clients[1].ended.Load() >= 2*calls-room })
		})
		if taken > 3*charged/2+4<<20 {
			t.Errorf("%s: calls take %d bytes, and %d are charged", method, taken, charged)
		}
		for _, c := range clients {
			_ = c.Conn.Close()
		}
		s.idle(t, 0)
	}
}

// TestConnectionsOfManyRejectedCallsAreClosed checks that a connection is closed when hundreds of
// its calls in a row were rejected for lack of memory.
func TestConnectionsOfManyRejectedCallsAreClosed(t *testing.T) {
	s := startSmall(t, grpcserver.Config{}, budget.Config{Limit: 64 << 20})
	s.blocks.Account.Must(budget.Transport, 16<<20) // all of it
	defer s.blocks.Account.Give(budget.Transport, 16<<20)
	c := s.raw(t)
	c.read()
	for range grpcserver.MostRefused - 1 {
		c.open(service + "ServerLive")
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return c.ended.Load() == grpcserver.MostRefused-1 })
	if n := s.blocks.Account.Used(budget.Connections); n != grpcserver.ConnCost {
		t.Errorf("after %d calls: %d bytes of connections are charged, want one connection", grpcserver.MostRefused-1, n)
	}
	c.open(service + "ServerLive")
	testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Used(budget.Connections) == 0 })
}

// TestHeadersAreCharged checks that the headers of calls are charged.
func TestHeadersAreCharged(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	c := s.raw(t)
	var headers []string
	for i := range 500 {
		headers = append(headers, fmt.Sprintf("h%d", i), "v")
	}
	const calls = 20
	taken, charged := s.grown(func() {
		for range calls {
			c.open(service+"ServerLive", headers...)
		}
		testkit.Eventually(t, servertest.Patience, func() bool { return s.Active() == calls })
	})
	if charged < calls*500*grpcserver.HeaderCost || taken > 3*charged/2+4<<20 {
		t.Errorf("calls take %d bytes, and %d are charged", taken, charged)
	}
}

// TestCallsWithoutHandlersAreChargedNoLonger checks that calls that the library ends before their
// handler starts leave no charge.
func TestCallsWithoutHandlersAreChargedNoLonger(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	c := s.raw(t)
	c.read()
	want := int64(0)
	for _, timeout := range []string{"1n", "1u", "10u", "50u", "1m"} {
		for range 100 {
			c.open(service+"ServerLive", "grpc-timeout", timeout)
			want++
		}
	}
	for _, path := range []string{"", "x", "/x", "x/y", "/x/y"} {
		c.open(path)
		want++
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return c.ended.Load() >= want-500 && s.Active() == 0 })
	s.idle(t, 1)
}

// TestPartialMessagesAreCharged checks that the received part of an incomplete message is charged.
func TestPartialMessagesAreCharged(t *testing.T) {
	for _, method := range []string{"ServerLive", "ModelInfer", "ModelStreamInfer"} {
		t.Run(method, func(t *testing.T) {
			s := start(t, grpcserver.Config{}, nil)
			c := s.raw(t)
			part := append([]byte{0x2a, 0x80, 0x80, 0x30}, make([]byte, 120<<10)...)
			const calls = 200
			taken, charged := s.grown(func() {
				for range calls {
					c.send(c.open(service+method), 1<<20, part)
				}
				testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Used(budget.Bodies) >= calls*int64(len(part)) })
			})
			if taken > 2*charged {
				t.Errorf("calls take %d bytes, and %d are charged", taken, charged)
			}
			if held := s.held(budget.Bodies); held != s.blocks.Account.Used(budget.Bodies) {
				t.Errorf("the connection holds %d bytes, and %d are charged", held, s.blocks.Account.Used(budget.Bodies))
			}
			_ = c.Conn.Close()
			s.idle(t, 0)
		})
	}
}

// TestTensorsAreAttributedToTheirConnections checks that a connection holds the tensors of requests
// that wait for a model, although the pool charges for them.
func TestTensorsAreAttributedToTheirConnections(t *testing.T) {
	gate := make(chan struct{}) // closed by open
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	slow := servertest.NewModel("slow", 0, "INPUT0 FP32 -1", "OUTPUT0 FP32 -1")
	slow.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		<-gate
		return slow.Echo(ctx, req, send)
	}
	s := start(t, grpcserver.Config{}, servertest.NewCore(slow))
	const elements, size = 1 << 20, 4 << 20
	raw := rawRequest("slow", "FP32", []int64{elements}, make([]byte, size))
	typed := rawRequest("slow", "FP32", []int64{elements}, nil)
	typed.RawInputContents, typed.Inputs[0].Contents = nil, &kserve.InferTensorContents{Fp32Contents: make([]float32, elements)}
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, raw, typed)
	ended := make(chan error, 2) // a value for each call
	for _, q := range []*kserve.ModelInferRequest{raw, typed} {
		go func() {
			_, err := s.client.ModelInfer(rpcContext(t), q)
			ended <- err
		}()
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return s.held(budget.Blocks) == 4*size })
	if n := s.blocks.Account.Used(budget.Blocks); n != 4*size {
		t.Errorf("%d bytes are charged, want %d", n, 4*size)
	}
	if n := s.blocks.Account.Used(budget.Transport); n > size/8 {
		t.Errorf("%d bytes are charged to the transport, which has passed on everything", n)
	}
	open()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got, end := receiveAll(t, stream); len(got) != 2 || end != io.EOF {
		t.Errorf("stream: got %q and %v, want two responses", got, end)
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return s.held(budget.Blocks) == 0 })
}

// TestUnreadSmallRepliesAreCharged checks that even small replies to a client with a closed window
// stay charged until the client reads them.
func TestUnreadSmallRepliesAreCharged(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	c := s.raw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.read()
	const calls = 1000
	taken, charged := s.grown(func() {
		for range calls {
			c.send(c.open(service+"ServerMetadata"), 0, nil)
		}
		testkit.Eventually(t, servertest.Patience, func() bool {
			return s.blocks.Account.Used(budget.Replies) >= calls*(grpcserver.SentLeast+grpcserver.SentCost) && s.Active() == 0
		})
	})
	if taken > 2*charged {
		t.Errorf("replies take %d bytes, and %d are charged", taken, charged)
	}
	if held := s.held(budget.Replies); held != s.blocks.Account.Used(budget.Replies) {
		t.Errorf("the connection holds %d bytes, and %d are charged", held, s.blocks.Account.Used(budget.Replies))
	}
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	testkit.Eventually(t, servertest.Patience, func() bool { return c.ended.Load() == calls })
	s.idle(t, 1)
}

// TestRepliesThatNobodyTakesEndTheConnection checks that WriteTimeout ends a connection with a
// closed window, and that the memory of its replies is released.
func TestRepliesThatNobodyTakesEndTheConnection(t *testing.T) {
	s := start(t, grpcserver.Config{WriteTimeout: 100 * time.Millisecond}, nil)
	c := s.raw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.send(c.open(service+"ServerLive"), 0, nil)
	testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Used(budget.Replies) > 0 })
	s.idle(t, 0)
}

// TestUnreadErrorsAreCharged checks that calls that ended with an error stay charged while the
// client does not read.
func TestUnreadErrorsAreCharged(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	c := s.raw(t)
	name := append([]byte{0x0a, 0x80, 0x20}, bytes.Repeat([]byte("x"), 4<<10)...)
	const calls = 3500
	for range calls {
		c.send(c.open(service+"ModelMetadata"), len(name), name)
	}
	testkit.Eventually(t, servertest.Patience, func() bool {
		return s.Active() == 0 && s.blocks.Account.Used(budget.Transport) > grpcserver.BlockedCost+100*grpcserver.CallCost
	})
	c.read()
	testkit.Eventually(t, servertest.Patience, func() bool { return c.ended.Load() == calls })
	s.idle(t, 1)
}

// TestAConnectionCanBeEnded checks that the account lists connections by name and can end a busy
// one.
func TestAConnectionCanBeEnded(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	c := s.raw(t)
	c.open(service + "ServerLive")
	testkit.Eventually(t, servertest.Patience, func() bool { return s.Active() == 1 })
	name := "gRPC connection from " + c.LocalAddr().String()
	s.blocks.Account.Holders(func(h *budget.Holder) bool {
		if h.Name() == name && h.Held(budget.Connections) == grpcserver.ConnCost && h.Held(budget.Transport) >= grpcserver.CallCost {
			h.End()
		}
		return true
	})
	_ = c.SetReadDeadline(time.Now().Add(servertest.Patience))
	if _, err := io.Copy(io.Discard, c.Conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection goes on: %v", err)
	}
	s.idle(t, 0)
}

// TestSmallValuesAreBounded checks that values of the maximum size are accepted and larger ones
// rejected, and that a stream continues after a rejection.
func TestSmallValuesAreBounded(t *testing.T) {
	s := startSmall(t, grpcserver.Config{}, budget.Config{Limit: 1 << 30, Limits: budget.Limits{LoadFiles: 10}})
	of := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		what   string
		most   int
		advice string
		change func(q *kserve.ModelInferRequest, n int)
	}{
		{"model_name", 4 << 10, "", func(q *kserve.ModelInferRequest, n int) { q.ModelName = of(n) }},
		{"model_version", 4 << 10, "", func(q *kserve.ModelInferRequest, n int) { q.ModelVersion = of(n) }},
		{"id", 64 << 10, "; --client-max-id-size changes the limit", func(q *kserve.ModelInferRequest, n int) { q.Id = of(n) }},
		{"the name of a tensor", 4 << 10, "", func(q *kserve.ModelInferRequest, n int) {
			q.Outputs = []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: of(n)}}
		}},
		{"the name of a parameter", 4 << 10, "", func(q *kserve.ModelInferRequest, n int) {
			q.Inputs[0].Parameters = paramsOf(of(n), true)
		}},
		{"the list of all parameters", 1 << 20, "; --client-max-parameters-size changes the limit", func(q *kserve.ModelInferRequest, n int) {
			// Each of the two maps counts names, tags and lengths in addition to the text.
			q.Parameters = paramsOf("a", of(1<<19-11))
			q.Inputs[0].Parameters = paramsOf("b", of(n-1<<19-11))
		}},
	} {
		for _, n := range []int{test.most, test.most + 1} {
			q := int32s("id_int32", 1)
			test.change(q, n)
			limit := fmt.Sprintf(" bytes, but at most %d are allowed%s", test.most, test.advice)
			_, err := s.client.ModelInfer(rpcContext(t), q)
			if n == test.most {
				if strings.Contains(status.Convert(err).Message(), limit) {
					t.Errorf("%s with %d bytes: got %v, want it accepted", test.what, n, err)
				}
				continue
			}
			want := fmt.Sprintf("%s has %d%s", test.what, n, limit)
			wantStatus(t, err, codes.InvalidArgument, want)
			stream := s.open(t, rpcContext(t))
			sendAll(t, stream, q, int32s("id_int32", 1))
			if got, end := receiveAll(t, stream); len(got) != 2 || !strings.HasSuffix(got[0], want) || got[1] != "id_int32/1  true 4" || end != io.EOF {
				t.Errorf("stream: got %q and %v, want %q", got, end, want)
			}
		}
	}
	files := map[string]*kserve.ModelRepositoryParameter{}
	for i := range 12 {
		files[fmt.Sprint("file:", i)] = &kserve.ModelRepositoryParameter{}
	}
	_, err := s.client.RepositoryModelLoad(rpcContext(t), &kserve.RepositoryModelLoadRequest{ModelName: "m", Parameters: files})
	wantStatus(t, err, codes.InvalidArgument, "'parameters' has 12 entries, but at most 11 are allowed")
}

// TestRefusedCallsKeepTheirConnection checks that calls rejected for lack of memory count as use of
// their connection. A connection without any call is evicted first.
func TestRefusedCallsKeepTheirConnection(t *testing.T) {
	s := start(t, grpcserver.Config{MaxConnections: 2}, nil)
	if err := s.blocks.Account.Take(budget.Transport, s.blocks.Account.Most(budget.Transport)); err != nil {
		t.Fatal(err)
	}
	defer s.blocks.Account.Give(budget.Transport, s.blocks.Account.Most(budget.Transport))
	used := s.raw(t)
	used.read()
	used.open(service + "ServerLive")
	testkit.Eventually(t, servertest.Patience, func() bool { return used.ended.Load() == 1 })
	silent := s.raw(t)
	// A connection whose first frames have not been processed is not idle.
	const firstFrames = grpcserver.PrefaceBytes + 9 + 13 // SETTINGS and WINDOW_UPDATE
	testkit.Eventually(t, servertest.Patience, func() bool {
		connections := s.Connections()
		for _, c := range connections {
			if c.Received() < firstFrames || !c.Waiting() {
				return false
			}
		}
		return len(connections) == 2
	})
	s.raw(t)
	_ = silent.SetReadDeadline(time.Now().Add(servertest.Patience))
	if _, err := io.Copy(io.Discard, silent.Conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the silent connection goes on: %v", err)
	}
	used.open(service + "ServerLive")
	testkit.Eventually(t, servertest.Patience, func() bool { return used.ended.Load() == 2 })
}

// TestRefusedCallsLeaveNoTimer checks that calls with distant deadlines that are rejected, for lack
// of memory or for their path, leave no memory in use after their connection has ended.
func TestRefusedCallsLeaveNoTimer(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	const clients, calls = 5, 1000 // more rejected calls would end their connection
	for path, full := range map[string]bool{service + "ServerLive": true, "x": false} {
		if full {
			if err := s.blocks.Account.Take(budget.Transport, s.blocks.Account.Most(budget.Transport)); err != nil {
				t.Fatal(err)
			}
		}
		before := heapAndStacks()
		for range clients {
			c := s.raw(t)
			c.read()
			for range calls {
				c.open(path, "grpc-timeout", "99999999H")
			}
			testkit.Eventually(t, servertest.Patience, func() bool { return c.ended.Load() == calls })
			_ = c.Conn.Close()
		}
		if full {
			s.blocks.Account.Give(budget.Transport, s.blocks.Account.Most(budget.Transport))
		}
		s.idle(t, 0)
		if !testkit.Within(servertest.Patience, func() bool { return heapAndStacks() < before+clients*calls*100 }) {
			t.Errorf("%s: %d calls leave %d bytes behind", path, clients*calls, heapAndStacks()-before)
		}
	}
}

// TestARefusalWithoutMemoryEndsItsStream checks that a stream ends with an error if there is no
// memory to encode that error as a reply.
func TestARefusalWithoutMemoryEndsItsStream(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	stream := s.open(t, rpcContext(t))
	testkit.Eventually(t, servertest.Patience, func() bool { return s.Active() > 0 })
	// The queue has room for the error, but the transport does not.
	rest := s.blocks.Account.Most(budget.Replies) - s.blocks.Account.Used(budget.Replies) - grpcserver.SentCost
	if err := s.blocks.Account.Take(budget.Replies, rest); err != nil {
		t.Fatal(err)
	}
	defer s.blocks.Account.Give(budget.Replies, rest)
	sendAll(t, stream, int32s("nobody", 1))
	a, err := stream.Recv()
	if code := status.Code(err); code != codes.Unavailable && code != codes.ResourceExhausted || !strings.Contains(err.Error(), "no memory for a response of ") {
		t.Errorf("got %v, %v, want the error of an account that is full", a, err)
	}
}

// TestAReplyThatIsTooLargeEndsItsOwnStream checks that a reply that can never fit into the account,
// here because of its classes, ends only its own client's stream.
func TestAReplyThatIsTooLargeEndsItsOwnStream(t *testing.T) {
	s := startSmall(t, grpcserver.Config{}, budget.Config{Limit: 64 << 20})
	small := rawRequest("classes", "FP32", []int64{1, 4}, make([]byte, 16))
	var others []clientStream
	for range 4 {
		stream := s.open(t, rpcContext(t))
		sendAll(t, stream, small)
		receive(t, stream)
		others = append(others, stream)
	}
	for _, elements := range []int64{20_000, 60_000} {
		large := rawRequest("classes", "FP32", []int64{1, elements}, make([]byte, 4*elements))
		large.Outputs = []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: paramsOf("classification", 1_000_000)}}
		stream := s.open(t, rpcContext(t))
		for range 4 {
			_ = stream.Send(large) // the stream may have ended
			if _, err := stream.Recv(); err != nil && err != io.EOF && status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%d classes: got %v", elements, err)
			}
		}
	}
	for _, stream := range others {
		sendAll(t, stream, small)
		receive(t, stream)
	}
}
