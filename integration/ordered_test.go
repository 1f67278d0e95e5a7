package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// TestOrderAndAClientThatDoesNotRead checks that a client that does not read its responses does not
// delay other clients of an ordered model, and gets all its responses in order once it reads.
func TestOrderAndAClientThatDoesNotRead(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"count/config.pbtxt": decoupledConfig + "dynamic_batching { preserve_ordering: true }\n", "count/1/model.py": countModel,
	}), "--grpc-stream-stall-timeout-seconds=3600") // the unread stream stays open
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	ask := func(counts ...int) grpc.BidiStreamingClient[kserve.ModelInferRequest, kserve.ModelStreamInferResponse] {
		conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", s.grpc),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(1<<16))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		stream, err := grpcservice.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range counts {
			if err := stream.Send(&kserve.ModelInferRequest{
				ModelName:        "count",
				Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "N", Datatype: "INT32", Shape: []int64{1}}},
				RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(n))},
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	read := func(who string, stream grpc.BidiStreamingClient[kserve.ModelInferRequest, kserve.ModelStreamInferResponse], want int) {
		r, err := stream.Recv()
		if err != nil {
			t.Fatalf("%s wants response %d: %v", who, want, err)
		}
		if raw := r.GetInferResponse().GetRawOutputContents(); len(raw) != 1 || int(binary.LittleEndian.Uint32(raw[0])) != want {
			t.Fatalf("%s got %v, want response %d", who, r, want)
		}
	}
	const many = 5000 // more than the transport buffers
	lazy := ask(many, 2)
	read("the first client", lazy, 0) // so that this client is first in the order
	other := ask(2)
	read("the other client", other, 0)
	read("the other client", other, 1)
	for i := 1; i < many; i++ {
		read("the first client", lazy, i)
	}
	read("the first client", lazy, 0) // of its second request
	read("the first client", lazy, 1)
}
