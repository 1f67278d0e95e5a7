package grpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestDroppedRepliesLetTheirMemoryGo checks that a reply's memory is released if the client closes
// its connection without reading. The response is part of a value that refers to the RPC, as with
// backends in this process.
func TestDroppedRepliesLetTheirMemoryGo(t *testing.T) {
	type inRPC struct {
		response infer.Response
		rpc      context.Context
	}
	var s *testServer
	one := servertest.NewModel("one", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	one.Infer = func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		r := &inRPC{response: *s.answer(req, 1<<20, true), rpc: ctx}
		send(&r.response)
		return nil
	}
	s = start(t, grpcserver.Config{}, servertest.NewCore(one))
	conn, _ := s.dial(t, grpc.WithStaticStreamWindowSize(1<<16))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{}, grpcservice.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(int32s("one", 1)); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Lent.Load() > 0 && s.Active() == 0 })
	_ = conn.Close()
	s.settled(t)
}
