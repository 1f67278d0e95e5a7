package grpc_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// waiting is a model whose requests wait for gate or for the end of their context. ended counts the
// latter.
type waiting struct {
	*servertest.Model
	late          bool // it responds although the context has ended
	gate          chan struct{}
	inside, ended atomic.Int64
}

func newWaiting(decoupled bool) *waiting {
	w := &waiting{gate: make(chan struct{}), Model: servertest.NewModel("waits", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")}
	if decoupled {
		w.Info.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	}
	w.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		w.inside.Add(1)
		defer w.inside.Add(-1)
		select {
		case <-w.gate:
			return w.Echo(ctx, req, send)
		case <-ctx.Done():
			w.ended.Add(1)
			if w.late {
				return w.Echo(ctx, req, send)
			}
			send(infer.ErrorResponse(infer.Errorf(infer.Cancelled, "")))
			return nil
		}
	}
	return w
}

// await waits until n requests are inside the model.
func (w *waiting) await(t testing.TB, n int64) {
	t.Helper()
	testkit.Eventually(t, servertest.Patience, func() bool { return w.inside.Load() == n })
}

// expire lets the deadline of an RPC pass while its request is inside the model. It retries with a
// later deadline if the request does not reach the model in time.
func (w *waiting) expire(t *testing.T, rpc func(ctx context.Context) error) {
	t.Helper()
	for limit := 50 * time.Millisecond; w.ended.Load() == 0; limit *= 2 {
		if limit > servertest.Patience {
			t.Fatal("no request came to the model before its deadline")
		}
		ctx, cancel := context.WithTimeout(rpcContext(t), limit)
		// By the client's own clock a late answer may still be in time.
		if err := rpc(ctx); status.Code(err) != codes.DeadlineExceeded && !(w.late && err == nil) {
			t.Errorf("got %v", err)
		}
		cancel()
		testkit.Within(limit, func() bool { return w.ended.Load() > 0 })
	}
}

// TestCancelEndsTheContext checks that cancellation, an expired deadline and a lost connection end
// the contexts of the client's requests.
func TestCancelEndsTheContext(t *testing.T) {
	type leave func(t *testing.T, s *testServer, w *waiting)
	infer := func(ctx context.Context, client grpcservice.GRPCInferenceServiceClient) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := client.ModelInfer(ctx, int32s("waits", 5000))
			done <- err
		}()
		return done
	}
	for name, test := range map[string]struct {
		decoupled bool
		leave     leave
		requests  int64
	}{
		"unary, cancelled": {false, func(t *testing.T, s *testServer, w *waiting) {
			ctx, cancel := context.WithCancel(rpcContext(t))
			done := infer(ctx, s.client)
			w.await(t, 1)
			cancel()
			wantStatus(t, <-done, codes.Canceled, "context canceled")
		}, 1},
		"unary, deadline": {false, func(t *testing.T, s *testServer, w *waiting) {
			w.expire(t, func(ctx context.Context) error { return <-infer(ctx, s.client) })
		}, 1},
		"unary, vanished": {false, func(t *testing.T, s *testServer, w *waiting) {
			conn, client := s.dial(t)
			done := infer(rpcContext(t), client)
			w.await(t, 1)
			_ = conn.Close()
			<-done //nolint:errcheck // only that it ends matters
		}, 1},
		"stream, cancelled": {false, func(t *testing.T, s *testServer, w *waiting) {
			ctx, cancel := context.WithCancel(rpcContext(t))
			stream := s.open(t, ctx)
			sendAll(t, stream, int32s("waits", 5000), int32s("waits", 1), int32s("id_int32", 5000))
			w.await(t, 2)
			cancel()
		}, 2},
		"stream, decoupled, vanished": {true, func(t *testing.T, s *testServer, w *waiting) {
			conn, client := s.dial(t)
			stream, err := client.ModelStreamInfer(rpcContext(t))
			if err != nil {
				t.Fatal(err)
			}
			sendAll(t, stream, int32s("waits", 5000), int32s("waits", 1), int32s("waits", 5000))
			w.await(t, 3)
			_ = conn.Close()
		}, 3},
		"stream, deadline": {true, func(t *testing.T, s *testServer, w *waiting) {
			w.expire(t, func(ctx context.Context) error {
				stream, err := s.client.ModelStreamInfer(ctx)
				if err != nil {
					return err
				}
				_ = stream.Send(int32s("waits", 5000)) // Recv returns the reason
				_, err = stream.Recv()
				return err
			})
		}, 1},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", late), func(t *testing.T) {
				w := newWaiting(test.decoupled)
				w.late = late
				s := start(t, grpcserver.Config{}, servertest.NewCore(w.Model))
				test.leave(t, s, w)
				testkit.Eventually(t, servertest.Patience, func() bool { return w.ended.Load() >= test.requests })
				s.settled(t)
			})
		}
	}
}

// TestShutdownAnswersRequestsInFlight checks that a shutdown answers requests in flight, rejects
// new ones and ends streams without requests.
func TestShutdownAnswersRequestsInFlight(t *testing.T) {
	w := newWaiting(false)
	s := start(t, grpcserver.Config{}, servertest.NewCore(w.Model))
	busy, idle := s.open(t, rpcContext(t)), s.open(t, rpcContext(t))
	sendAll(t, idle, withID(int32s("id_int32", 1), "i"))
	if got := receive(t, idle); got != "id_int32/1 i true 4" {
		t.Errorf("got %q", got)
	}
	sendAll(t, busy, withID(int32s("waits", 5000), "a"))
	unary := make(chan error, 1)
	go func() {
		_, err := s.client.ModelInfer(rpcContext(t), int32s("waits", 5000))
		unary <- err
	}()
	w.await(t, 2)
	s.cancel()
	_, err := idle.Recv()
	wantStatus(t, err, codes.Unavailable, grpcserver.ErrStopping.Message)
	_, err = s.client.ModelInfer(rpcContext(t), int32s("id_int32", 1))
	wantStatus(t, err, codes.Unavailable, grpcserver.ErrStopping.Message)
	_, err = s.client.ServerReady(rpcContext(t), &kserve.ServerReadyRequest{})
	wantStatus(t, err, codes.Unavailable, "Server exiting")
	sendAll(t, busy, withID(int32s("id_int32", 1), "b"))
	close(w.gate)
	if err := <-unary; err != nil {
		t.Errorf("the unary RPC in flight: %v", err)
	}
	// b is rejected, or arrives too late for the stream. The stream ends after a or b, unless its
	// client has half-closed it before.
	got, end := receiveAll(t, busy)
	refused := []string{"waits/1 a true 20000", "/ b -: " + grpcserver.ErrStopping.Message}
	if end == io.EOF && !slices.Equal(got, refused) ||
		end != io.EOF && (status.Code(end) != codes.Unavailable || !slices.Equal(got, refused[:min(max(len(got), 1), 2)])) {
		t.Errorf("the stream in flight: got %q and %v", got, end)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestShutdownLateEndsContexts checks that contexts and connections end after ExitTimeout.
func TestShutdownLateEndsContexts(t *testing.T) {
	w := newWaiting(false)
	s := start(t, grpcserver.Config{ExitTimeout: 50 * time.Millisecond}, servertest.NewCore(w.Model))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, int32s("waits", 5000), int32s("waits", 2))
	w.await(t, 2)
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if n := w.ended.Load(); n != 2 {
		t.Errorf("%d contexts have ended, want 2", n)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the client got %v", err)
	}
}

// TestShutdownNamesHeldRequests checks that Run reports requests that a model does not release.
func TestShutdownNamesHeldRequests(t *testing.T) {
	gate := make(chan struct{})
	m := servertest.NewModel("holds", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	begun := make(chan struct{})
	m.Infer = func(_ context.Context, _ *infer.Request, _ infer.Sender) error {
		close(begun)
		<-gate
		return nil
	}
	s := start(t, grpcserver.Config{ExitTimeout: time.Millisecond}, servertest.NewCore(m))
	go func() { _, _ = s.client.ModelInfer(rpcContext(t), int32s("holds", 5000)) }()
	<-begun
	err := s.stop()
	if want := "1 gRPC handlers are still at work 2s after their connections were closed"; err == nil || err.Error() != want {
		t.Errorf("Run: %v, want %s", err, want)
	}
	close(gate)
	s.stop = func() error { return nil }
}

// TestBackpressureReachesTheModel checks that a model that sends faster than its client reads is
// blocked, and continues when the client reads.
func TestBackpressureReachesTheModel(t *testing.T) {
	const answers, size = 300, 100 << 10
	var sent atomic.Int64
	var s *testServer
	many := decoupledModel("many", func(_ context.Context, req *infer.Request, send infer.Sender) error {
		for i := range answers {
			send(s.answer(req, size, i == answers-1))
			sent.Add(1)
		}
		return nil
	})
	s = start(t, grpcserver.Config{MaxStreamBytes: 1 << 20}, servertest.NewCore(many), grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<20))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, withID(int32s("many", 1), "a"))
	// The model can send as many bytes as may be queued, one more response, and what fits into the
	// transport's buffers.
	testkit.Eventually(t, servertest.Patience, func() bool { return sent.Load() >= 10 })
	if n := sent.Load(); n > 40 {
		t.Errorf("the model has sent %d answers to a client that does not read", n)
	}
	if n := s.blocks.Lent.Load(); n > 40 {
		t.Errorf("%d blocks wait for the client", n)
	}
	got, end := receiveAll(t, stream)
	if len(got) != answers || got[answers-1] != fmt.Sprintf("many/1 a true %d", size) || end != io.EOF {
		t.Errorf("got %d answers and %v", len(got), end)
	}
}

// TestResponseLimitHoldsForEachRequest checks that MaxStreamResponses limits each request
// separately.
func TestResponseLimitHoldsForEachRequest(t *testing.T) {
	var sent [2]atomic.Int64
	var s *testServer
	many := decoupledModel("many", func(_ context.Context, req *infer.Request, send infer.Sender) error {
		for i := range 1000 {
			send(s.answer(req, 4000, i == 999))
			sent[len(req.ID)-1].Add(1)
		}
		return nil
	})
	s = start(t, grpcserver.Config{MaxStreamResponses: 5}, servertest.NewCore(many), grpc.WithInitialWindowSize(1<<16))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, withID(int32s("many", 1), "a"), withID(int32s("many", 1), "bb"))
	testkit.Eventually(t, servertest.Patience, func() bool { return sent[0].Load() >= 5 && sent[1].Load() >= 5 })
	if a, b := sent[0].Load(), sent[1].Load(); a+b > 200 {
		t.Errorf("the models have sent %d and %d answers to a client that does not read", a, b)
	}
	if got, end := receiveAll(t, stream); len(got) != 2000 || end != io.EOF {
		t.Errorf("got %d answers and %v", len(got), end)
	}
}

// TestStalledStreamEnds checks that a client that blocks a model for too long loses its stream, and
// that further responses of the model are dropped.
func TestStalledStreamEnds(t *testing.T) {
	var s *testServer
	done := make(chan struct{})
	many := decoupledModel("many", func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		defer close(done)
		for i := range 300 {
			send(s.answer(req, 100<<10, i == 299))
		}
		if ctx.Err() == nil {
			return infer.Errorf(infer.Internal, "the context has not ended")
		}
		return nil
	})
	s = start(t, grpcserver.Config{MaxStreamBytes: 1 << 20, StreamStallTimeout: 20 * time.Millisecond}, servertest.NewCore(many),
		grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, int32s("many", 1))
	<-done
	got, end := receiveAll(t, stream)
	if len(got) > 100 {
		t.Errorf("got %d answers", len(got))
	}
	wantStatus(t, end, codes.ResourceExhausted, "the client does not read the responses of its stream")
	s.settled(t)
}

// fakeWindow counts responses as a backend does.
type fakeWindow struct {
	mu   sync.Mutex
	room sync.Cond
	out  int
}

func (w *fakeWindow) Retain() {}

func (w *fakeWindow) Release() {
	w.mu.Lock()
	w.out--
	w.room.Broadcast()
	w.mu.Unlock()
}

// TestSlotsLetResponsesQueue checks that responses with slots are queued without blocking the
// model, and that a client that reads none of them loses its stream.
func TestSlotsLetResponsesQueue(t *testing.T) {
	var s *testServer
	window := &fakeWindow{}
	window.room.L = &window.mu
	sent, done := make(chan struct{}), make(chan struct{})
	many := decoupledModel("many", func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		defer close(done)
		stop := context.AfterFunc(ctx, func() {
			window.mu.Lock()
			window.room.Broadcast()
			window.mu.Unlock()
		})
		defer stop()
		for i := range 300 {
			if i == 100 {
				close(sent)
			}
			window.mu.Lock()
			for window.out >= 100 && ctx.Err() == nil {
				window.room.Wait()
			}
			window.out++
			window.mu.Unlock()
			r := s.answer(req, 100<<10, i == 299)
			r.Slot = window
			send(r) // must not block: more than MaxStreamResponses and MaxStreamBytes are queued
		}
		return nil
	})
	s = start(t, grpcserver.Config{MaxStreamResponses: 4, MaxStreamBytes: 1 << 20, StreamStallTimeout: 50 * time.Millisecond}, servertest.NewCore(many),
		grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, int32s("many", 1))
	<-sent
	<-done
	_, end := receiveAll(t, stream)
	wantStatus(t, end, codes.ResourceExhausted, "the client does not read the responses of its stream")
	s.settled(t)
}

// TestWriteTimeoutEndsUnreadAnswers checks that the memory of an unread reply is released after
// WriteTimeout.
func TestWriteTimeoutEndsUnreadAnswers(t *testing.T) {
	s := start(t, grpcserver.Config{WriteTimeout: 10 * time.Millisecond}, nil, grpc.WithStaticStreamWindowSize(1<<16))
	lazy, err := s.conn.NewStream(rpcContext(t), &grpc.StreamDesc{ServerStreams: true}, service+"ModelInfer")
	if err != nil {
		t.Fatal(err)
	}
	if err := lazy.SendMsg(int32s("id_int32", 1<<18)); err != nil {
		t.Fatal(err)
	}
	if err := lazy.CloseSend(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return s.core.Served.Load() == 1 })
	s.settled(t)
	if err := lazy.RecvMsg(&kserve.ModelInferResponse{}); status.Code(err) != codes.Unavailable {
		t.Errorf("the client got %v", err)
	}
	if _, err := s.client.ModelInfer(rpcContext(t), int32s("id_int32", 4)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
