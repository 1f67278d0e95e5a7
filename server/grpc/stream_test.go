package grpc_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/grpc/message"
	"github.com/nereid-serving/nereid/server/servertest"
)

type clientStream = grpc.BidiStreamingClient[kserve.ModelInferRequest, kserve.ModelStreamInferResponse]

// open starts a stream.
func (s *testServer) open(t testing.TB, ctx context.Context, options ...grpc.CallOption) clientStream {
	t.Helper()
	stream, err := s.client.ModelStreamInfer(ctx, options...)
	if err != nil {
		t.Fatalf("ModelStreamInfer: %v", err)
	}
	return stream
}

func sendAll(t testing.TB, stream clientStream, requests ...*kserve.ModelInferRequest) {
	t.Helper()
	for _, q := range requests {
		if err := stream.Send(q); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
}

// receive returns the next message as text, with the sizes of its tensors instead of their bytes.
func receive(t testing.TB, stream clientStream) string {
	t.Helper()
	a, err := stream.Recv()
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return brief(a)
}

// brief formats a message as "<model>/<version> <id> <final>[ <bytes>…][: <error>]".
func brief(a *kserve.ModelStreamInferResponse) string {
	r := a.InferResponse
	final := "-"
	if p := r.GetParameters()["triton_final_response"]; p != nil {
		final = fmt.Sprint(p.GetBoolParam())
	}
	text := fmt.Sprintf("%s/%s %s %s", r.GetModelName(), r.GetModelVersion(), r.GetId(), final)
	for _, raw := range r.GetRawOutputContents() {
		text += fmt.Sprintf(" %d", len(raw))
	}
	if a.ErrorMessage != "" {
		text += ": " + a.ErrorMessage
	}
	return text
}

// receiveAll half-closes the stream and returns all messages and the status.
func receiveAll(t testing.TB, stream clientStream) (got []string, end error) {
	t.Helper()
	if err := stream.CloseSend(); err != nil {
		t.Fatalf("close: %v", err)
	}
	for {
		a, err := stream.Recv()
		if err != nil {
			return got, err
		}
		got = append(got, brief(a))
	}
}

func withID(q *kserve.ModelInferRequest, id string, params ...any) *kserve.ModelInferRequest {
	q.Id = id
	if len(params) > 0 {
		q.Parameters = paramsOf(params...)
	}
	return q
}

// answer returns a response with one output of n bytes, which comes from blocks if n is large.
func (s *testServer) answer(req *infer.Request, n int, final bool) *infer.Response {
	t := infer.Tensor{Name: "OUTPUT0", DataType: infer.Uint8, Shape: []int64{int64(n)}}
	if n > message.BlockSize {
		t.Data, t.Memory, _ = s.blocks.Allocate(n)
	} else {
		t.Data = make([]byte, n)
	}
	return &infer.Response{Model: req.Model, Version: 1, ID: req.ID, Final: final, Outputs: []infer.Tensor{t}}
}

func TestStreamAnswersEachRequest(t *testing.T) {
	var s *testServer
	three := decoupledModel("three", func(_ context.Context, req *infer.Request, send infer.Sender) error {
		send(s.answer(req, 8, false))
		send(&infer.Response{Model: req.Model, Version: 1, ID: req.ID, Err: infer.Errorf(infer.Unavailable, "its own error")})
		send(s.answer(req, 100000, false))
		send(&infer.Response{Model: req.Model, Version: 1, ID: req.ID, Empty: true, Final: true})
		return nil
	})
	refuses := servertest.NewModel("refuses", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	refuses.Infer = func(context.Context, *infer.Request, infer.Sender) error {
		return infer.Errorf(infer.Cancelled, "")
	}
	s = start(t, grpcserver.Config{}, servertest.NewCore(three, refuses))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream,
		withID(int32s("id_int32", 4), "a"),
		withID(int32s("none", 4), "b"),
		withID(int32s("fails", 4), "c"),
		withID(int32s("id_int32", 10000), "d", "triton_enable_empty_final_response", true),
		withID(int32s("id_int32", 0), "e", "triton_x", true),
		withID(int32s("refuses", 10000), ""),
	)
	got, end := receiveAll(t, stream)
	if want := []string{"id_int32/1 a true 16", "/ b -: Request for unknown model: 'none' is not found", "fails/ c true: it fails: \"ü\" /x",
		"id_int32/1 d true 40000", "/ e -: parameter keys starting with 'triton_' are reserved for Triton usage. " +
			"Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response",
		"/  -: Cancelled"}; !slices.Equal(got, want) || end != io.EOF {
		t.Errorf("got %q and %v, want %q", got, end, want)
	}

	stream = s.open(t, rpcContext(t))
	sendAll(t, stream, withID(int32s("three", 1), "f"))
	got = []string{receive(t, stream), receive(t, stream), receive(t, stream)}
	sendAll(t, stream, withID(int32s("three", 1), "g", "triton_enable_empty_final_response", true))
	rest, end := receiveAll(t, stream)
	if want := []string{"three/1 f false 8", "three/ f false: its own error", "three/1 f false 100000",
		"three/1 g false 8", "three/ g false: its own error", "three/1 g false 100000", "three/ g true"}; !slices.Equal(append(got, rest...), want) || end != io.EOF {
		t.Errorf("got %q and %v, want %q", append(got, rest...), end, want)
	}
}

// TestStreamMessagesAreWhole compares complete messages of a stream, including errors.
func TestStreamMessagesAreWhole(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	stream := s.open(t, rpcContext(t))
	q := rawRequest("id_uint8", "UINT8", []int64{2}, []byte("ab"))
	q.ModelVersion = "01"
	fails := withID(int32s("fails", 1), "x")
	fails.ModelVersion = "1"
	sendAll(t, stream, q, fails, withID(&kserve.ModelInferRequest{}, "y"))
	for _, text := range []string{
		`infer_response {model_name: "id_uint8" model_version: "1" parameters {key: "triton_final_response" value {bool_param: true}}
			outputs {name: "OUTPUT0" datatype: "UINT8" shape: 2} raw_output_contents: "ab"}`,
		`error_message: "it fails: \"ü\" /x" infer_response {model_name: "fails" model_version: "1" id: "x"
			parameters {key: "triton_final_response" value {bool_param: true}}}`,
		`error_message: "Request for unknown model: '' is not found" infer_response {id: "y"}`,
	} {
		want := &kserve.ModelStreamInferResponse{}
		if err := prototext.Unmarshal([]byte(text), want); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v and error %v, want %v", got, err, want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
}

// TestStreamOrderFollowsRequests checks that replies have the order of their requests, except those
// of decoupled models.
func TestStreamOrderFollowsRequests(t *testing.T) {
	gates := map[string]chan struct{}{}
	for _, id := range []string{"a", "b", "c", "d"} {
		gates[id] = make(chan struct{})
	}
	var s *testServer
	gated := func(_ context.Context, req *infer.Request, send infer.Sender) error {
		<-gates[req.ID]
		send(s.answer(req, 1, true))
		return nil
	}
	ordered := servertest.NewModel("ordered", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	ordered.Infer = gated
	s = start(t, grpcserver.Config{}, servertest.NewCore(ordered, decoupledModel("free", gated)))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, withID(int32s("ordered", 1), "a"), withID(int32s("ordered", 1), "b"), withID(int32s("free", 1), "c"), withID(int32s("ordered", 1), "d"))
	testkit.Eventually(t, servertest.Patience, func() bool { return s.core.Served.Load() == 4 })
	close(gates["b"])
	close(gates["d"])
	close(gates["c"])
	if got := receive(t, stream); got != "free/1 c true 1" {
		t.Errorf("got %q first", got)
	}
	close(gates["a"])
	got, end := receiveAll(t, stream)
	if want := []string{"ordered/1 a true 1", "ordered/1 b true 1", "ordered/1 d true 1"}; !slices.Equal(got, want) || end != io.EOF {
		t.Errorf("got %q and %v, want %q", got, end, want)
	}
}

// TestStreamEntersRequestsInOrder checks that each request of a stream enters its scheduler, or
// gets its response, before the next request does, and that no request waits for the response to
// another.
func TestStreamEntersRequestsInOrder(t *testing.T) {
	gate := make(chan struct{})
	var mu sync.Mutex
	var order []string
	waits := decoupledModel("waits", nil)
	waits.Enters = true
	var s *testServer
	waits.Infer = func(_ context.Context, req *infer.Request, send infer.Sender) error {
		mu.Lock()
		order = append(order, req.ID)
		mu.Unlock()
		switch req.ID {
		case "refused":
			return infer.Errorf(infer.InvalidArg, "no")
		case "answered":
			send(s.answer(req, 1, true)) // as from a cache: it enters no scheduler
			return nil
		}
		req.Entered()
		<-gate
		send(s.answer(req, 1, true))
		return nil
	}
	s = start(t, grpcserver.Config{}, servertest.NewCore(waits))
	stream := s.open(t, rpcContext(t))
	var want []string
	for i := range 30 {
		id := [...]string{"waits", "refused", "answered"}[i%3]
		want = append(want, id)
		sendAll(t, stream, withID(int32s("waits", 1), id))
	}
	testkit.Eventually(t, servertest.Patience, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == len(want)
	})
	close(gate)
	if !slices.Equal(order, want) {
		t.Errorf("the core got %q, want %q", order, want)
	}
	if answers, end := receiveAll(t, stream); len(answers) != len(want) || end != io.EOF {
		t.Errorf("got %q and %v", answers, end)
	}
}

// TestStreamErrorEndsTheStreamIfAsked checks that with triton_grpc_error the first error ends the
// stream with its status and cancels the other requests.
func TestStreamErrorEndsTheStreamIfAsked(t *testing.T) {
	waits := decoupledModel("waits", func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		<-ctx.Done()
		send(infer.ErrorResponse(infer.Errorf(infer.Cancelled, "")))
		return nil
	})
	s := start(t, grpcserver.Config{}, servertest.NewCore(waits))
	stream := s.open(t, rpcContext(t, grpcserver.ErrorKey, "true"))
	sendAll(t, stream, withID(int32s("waits", 5000), "a"), withID(int32s("none", 1), "b"), withID(int32s("id_int32", 5000), "c"), withID(int32s("fails", 5000), "d"))
	for _, want := range []string{"/ b -: Request for unknown model: 'none' is not found", "id_int32/1 c true 20000"} {
		if got := receive(t, stream); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	_, err := stream.Recv()
	wantStatus(t, err, codes.Unavailable, "it fails: \"ü\" /x")
	s.settled(t)
}

// TestStreamsAnswerManyAtOnce keeps many requests in flight on several streams, and checks that all
// are answered.
func TestStreamsAnswerManyAtOnce(t *testing.T) {
	const streams, requests = 4, 300
	s := start(t, grpcserver.Config{MaxStreamRequests: 16, MaxStreamBytes: 1 << 20}, nil)
	failed := make(chan error, 2*streams)
	for range streams {
		stream := s.open(t, rpcContext(t))
		go func() {
			for i := range requests {
				if err := stream.Send(withID(int32s("id_int32", i*37), fmt.Sprint(i))); err != nil {
					failed <- err
					return
				}
			}
			failed <- stream.CloseSend()
		}()
		go func() {
			for i := range requests {
				a, err := stream.Recv()
				if err == nil {
					if got, want := brief(a), fmt.Sprintf("id_int32/1 %d true %d", i, i*37*4); got != want {
						err = fmt.Errorf("got %q, want %q", got, want)
					}
				}
				if err != nil {
					failed <- err
					return
				}
			}
			if _, err := stream.Recv(); err != io.EOF {
				failed <- fmt.Errorf("stream ends with %w", err)
				return
			}
			failed <- nil
		}()
	}
	for range 2 * streams {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
