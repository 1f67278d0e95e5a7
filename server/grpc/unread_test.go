package grpc_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// endOf reads a stream to its end and returns the error.
func endOf(stream clientStream) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// TestUnreadStreamHoldsLittleAndEnds checks that replies queued for a client that does not read
// hold almost none of the models' memory, ordered or not, and that the stream ends in time.
func TestUnreadStreamHoldsLittleAndEnds(t *testing.T) {
	testkit.Story(t)
	const requests, size = 1000, 8 << 10
	var s *testServer
	respond := func(_ context.Context, req *infer.Request, send infer.Sender) error {
		send(s.answer(req, size, true))
		return nil
	}
	one := servertest.NewModel("one", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	one.Infer = respond
	many := decoupledModel("many", respond)
	core := servertest.NewCore(one, many)
	s = start(t, grpcserver.Config{StreamStallTimeout: 5 * time.Second}, core, grpc.WithStaticStreamWindowSize(1<<16))
	for _, name := range []string{"one", "many"} {
		t.Run(name, func(t *testing.T) {
			served := core.Served.Load()
			stream := s.open(t, rpcContext(t))
			for i := range requests {
				sendAll(t, stream, withID(int32s(name, 1), fmt.Sprint(i)))
			}
			// Only the few replies in the queue and in the transport may hold lent memory.
			// Goroutines that have not queued their reply yet hold more. After the end of the
			// stream nothing is lent.
			if !testkit.Within(servertest.Patience, func() bool {
				return core.Served.Load()-served == requests && s.blocks.Lent.Load() <= 100 && s.Active() > 0
			}) {
				t.Errorf("%d responses of %d hold what they were lent for as long as the stream goes on", s.blocks.Lent.Load(), requests)
			}
			testkit.Eventually(t, servertest.Patience, func() bool { return s.Active() == 0 })
			if err := endOf(stream); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the stream ends with %v, want ResourceExhausted", err)
			}
			s.settled(t)
		})
	}
}

// TestUnreadStreamsFillAccount checks that the replies of unread streams do not exceed their share
// of the account: such streams end one after another, and a stream that is read continues.
func TestUnreadStreamsFillAccount(t *testing.T) {
	const streams, requests, elements = 8, 400, 900
	core := servertest.NewCore()
	s := start(t, grpcserver.Config{}, core, grpc.WithStaticStreamWindowSize(1<<16))
	const most = (8 << 20) / (requests * elements * 4) // number of streams whose replies fit
	account := budget.New(budget.Config{Limit: 16 << 20})
	s.CountUnread(account)
	_, reader := s.dial(t)
	reads, err := reader.ModelStreamInfer(rpcContext(t))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, streams)
	release := make(chan struct{})
	var unread []clientStream
	for range streams {
		unread = append(unread, s.open(t, rpcContext(t)))
	}
	// This must precede the first message. Otherwise streams that have not begun would look ended.
	testkit.Eventually(t, servertest.Patience, func() bool { return s.Unread() == 1+streams })
	for _, stream := range unread {
		go func() {
			for i := range requests {
				if stream.Send(withID(int32s("id_int32", elements), fmt.Sprint(i))) != nil {
					break // the server has ended it
				}
			}
			_ = stream.CloseSend()
			<-release
			ended <- endOf(stream)
		}()
	}
	over := int64(0)
	testkit.Eventually(t, servertest.Patience, func() bool {
		over = max(over, account.Used(budget.Replies)-account.Most(budget.Replies))
		sendAll(t, reads, withID(int32s("id_int32", 1), "x"))
		if got := receive(t, reads); got != "id_int32/1 x true 4" {
			t.Fatalf("the stream that is read: got %q", got)
		}
		return s.Unread() <= 1+most
	})
	if over > 0 {
		t.Errorf("replies took %d bytes more than their share", over)
	}
	close(release)
	refused := 0
	for range streams {
		switch err := <-ended; status.Code(err) {
		case codes.ResourceExhausted:
			refused++
		case codes.OK, codes.DeadlineExceeded:
		default:
			if err != io.EOF {
				t.Errorf("a stream ended with %v", err)
			}
		}
	}
	if refused == 0 {
		t.Error("no stream was ended because memory ran out")
	}
	_ = reads.CloseSend()
	if _, err := reads.Recv(); err != io.EOF {
		t.Errorf("the stream that is read ends with %v", err)
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return account.Total() == 0 })
}

// TestPausedStreamsAreCharged checks that the flow-control window of a stream that is not read is
// charged, because its client may fill it, and that streams end when the account is full.
func TestPausedStreamsAreCharged(t *testing.T) {
	const streams = 5
	gate := make(chan struct{})
	var begun atomic.Int32
	waits := servertest.NewModel("waits", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	waits.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		begun.Add(1)
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return waits.Echo(ctx, req, send)
	}
	s := start(t, grpcserver.Config{MaxStreamRequests: 1}, servertest.NewCore(waits))
	account := budget.New(budget.Config{Limit: 3 * 4 * grpcserver.StreamWindow}) // a quarter of it is for the transport
	s.CountUnread(account)
	var open []clientStream
	for range streams {
		stream := s.open(t, rpcContext(t))
		sendAll(t, stream, withID(int32s("waits", 1), "a"))
		open = append(open, stream)
	}
	testkit.Eventually(t, servertest.Patience, func() bool {
		// All streams must have begun: with only three of them the counts would be the same.
		return begun.Load() == streams && s.Unread() == 3 && account.Used(budget.Transport) == 3*grpcserver.StreamWindow
	})
	close(gate)
	refused := 0
	for _, stream := range open {
		_ = stream.CloseSend()
		switch err := endOf(stream); {
		case status.Code(err) == codes.ResourceExhausted:
			refused++
		case err != io.EOF:
			t.Errorf("a stream ends with %v", err)
		}
	}
	if refused != streams-3 {
		t.Errorf("%d streams were ended, want %d", refused, streams-3)
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return account.Total() == 0 })
}

// TestUnreadRepliesAreChargedAndEnd checks that unread replies to unary RPCs are charged until
// their connection ends, which happens after a timeout.
func TestUnreadRepliesAreChargedAndEnd(t *testing.T) {
	s := startWith(t, grpcserver.Config{}, nil, func(parts *server.Parts, blocks *servertest.Blocks) {
		blocks.Account = budget.New(budget.Config{Limit: 1 << 30, Limits: budget.Limits{RequestID: 1 << 20}})
		parts.Allocate, parts.Memory = blocks.Allocate, blocks.Account
	})
	conn, _ := s.dial(t, grpc.WithStaticStreamWindowSize(1<<16))
	ctx, leave := context.WithCancel(rpcContext(t))
	// The reply exceeds an RPC's window, which the library enlarges for clients that read. It is on
	// the heap, as part of the head of the reply.
	const rpcs, size = 50, 1 << 18
	for range rpcs {
		go func() {
			// The client opens the stream but never reads it.
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{}, grpcservice.GRPCInferenceService_ModelInfer_FullMethodName)
			if err == nil {
				_ = stream.SendMsg(withID(int32s("id_int32", 1), strings.Repeat("i", size)))
				_ = stream.CloseSend()
			}
		}()
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Used(budget.Replies) >= rpcs*size })
	leave()
	_ = conn.Close()
	testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Used(budget.Replies) == 0 })
}
