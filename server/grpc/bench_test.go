package grpc_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// echo replies with its input tensor, at no cost of its own.
type echo struct{ *servertest.Core }

func (echo) Infer(_ context.Context, req *infer.Request, send infer.Sender) error {
	out := req.Inputs[0]
	out.Name = "OUTPUT0"
	out.Retain()
	send(&infer.Response{Model: req.Model, Version: 1, ID: req.ID, Outputs: []infer.Tensor{out}, Final: true})
	return nil
}

// blocks reuses released blocks, as a shared-memory pool does.
type blocks struct {
	mu   sync.Mutex
	free map[int][]*block
}

type block struct {
	home *blocks
	data []byte
	refs atomic.Int32
}

func (p *blocks) allocate(n int) ([]byte, infer.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b *block
	if list := p.free[n]; len(list) > 0 {
		b, p.free[n] = list[len(list)-1], list[:len(list)-1]
	} else {
		b = &block{home: p, data: make([]byte, n)}
	}
	b.refs.Store(1)
	return b.data, b, nil
}

func (b *block) Retain() { b.refs.Add(1) }

func (b *block) Release() {
	if b.refs.Add(-1) == 0 {
		b.home.mu.Lock()
		b.home.free[len(b.data)] = append(b.home.free[len(b.data)], b)
		b.home.mu.Unlock()
	}
}

// bare is the generated server on the plain library. It measures the cost of an empty front end.
type bare struct {
	grpcservice.UnimplementedGRPCInferenceServiceServer
}

func (bare) ModelInfer(_ context.Context, q *kserve.ModelInferRequest) (*kserve.ModelInferResponse, error) {
	return &kserve.ModelInferResponse{ModelName: q.ModelName, ModelVersion: "1", Id: q.Id,
		Outputs:           []*kserve.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: q.Inputs[0].Datatype, Shape: q.Inputs[0].Shape}},
		RawOutputContents: q.RawInputContents}, nil
}

// benchClient sends pre-encoded messages, so that the client takes little of the measured time.
func benchClient(b *testing.B, address string, size, parallel int) {
	b.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(grpcserver.StreamWindow), grpc.WithStaticConnWindowSize(grpcserver.ConnectionWindow*grpcserver.StreamWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.ForceCodecV2(benchCodec{})))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	request := encodeBench(b, rawRequest("id_uint8", "UINT8", []int64{int64(size)}, make([]byte, size)))
	exchange := func() error {
		var n benchReply
		err := conn.Invoke(context.Background(), service+"ModelInfer", request, &n)
		if err == nil && int(n) < size {
			err = fmt.Errorf("answer has %d bytes", n)
		}
		return err
	}
	if err := exchange(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	b.SetParallelism(parallel)
	if parallel == 0 {
		for range b.N {
			if err := exchange(); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := exchange(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

var benchSizes = []struct {
	name string
	size int
}{{"4B", 4}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"16MiB", 16 << 20}}

func BenchmarkInfer(b *testing.B) {
	for _, row := range benchSizes {
		for _, parallel := range []int{0, 4} {
			b.Run(fmt.Sprintf("%s/%d", row.name, parallel), func(b *testing.B) {
				blocks := &blocks{free: map[int][]*block{}}
				g, err := grpcserver.New(grpcserver.Config{Address: "127.0.0.1"}, server.Parts{Core: echo{servertest.NewCore()}, Allocate: blocks.allocate, Logging: &servertest.Log[server.LogSettings]{}}, zerolog.Nop())
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Listen(); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- g.Run(ctx) }()
				benchClient(b, g.Addr().String(), row.size, parallel)
				cancel()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func BenchmarkBare(b *testing.B) {
	for _, row := range benchSizes {
		for _, parallel := range []int{0, 4} {
			b.Run(fmt.Sprintf("%s/%d", row.name, parallel), func(b *testing.B) {
				srv := grpc.NewServer(grpc.MaxRecvMsgSize(1<<30), grpc.StaticStreamWindowSize(grpcserver.StreamWindow), grpc.StaticConnWindowSize(grpcserver.ConnectionWindow*grpcserver.StreamWindow))
				grpcservice.RegisterGRPCInferenceServiceServer(srv, bare{})
				socket, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				go func() { _ = srv.Serve(socket) }()
				benchClient(b, socket.Addr().String(), row.size, parallel)
				srv.Stop()
			})
		}
	}
}
