package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nereid-serving/nereid/kserve"
)

const (
	inferMethod  = "/inference.GRPCInferenceService/ModelInfer"
	streamMethod = "/inference.GRPCInferenceService/ModelStreamInfer"
)

// rawCodec sends bytes unchanged and ignores the reply.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// withGRPC runs an action with its own connection.
func withGRPC(k *soak, options []grpc.DialOption, act func(a *grpcAsker)) {
	a, err := dialGRPC(k, options...)
	if err != nil {
		return
	}
	defer a.close()
	act(a)
}

// encoded returns a message whose id, a mark, is overwritten.
func encoded(q question, id string) []byte {
	m := q.message()
	m.Id = "MARK" + id
	b, _ := proto.Marshal(m) // its strings are valid
	return b
}

func invalidMessages(k *soak, ctx context.Context, r *rand.Rand) {
	message := encoded(numbers(question{model: "asks", shape: []int64{1}}, 1), "")
	switch r.IntN(3) {
	case 0: // an id that is not UTF-8
		for i := range len(message) - 4 {
			if string(message[i:i+4]) == "MARK" {
				copy(message[i:], "\xff\xfe\xed\xa0")
			}
		}
	case 1: // a truncated message
		message = message[:r.IntN(len(message))]
	default: // a valid message, changed at a random position
		message[r.IntN(len(message))] ^= byte(1 << r.IntN(8))
	}
	withGRPC(k, nil, func(a *grpcAsker) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_ = a.conn.Invoke(ctx, inferMethod, message, new([]byte), grpc.ForceCodecV2(rawCodec{}))
	})
}

// unreadStreams requests a hundred thousand responses, several times, and reads none of them.
func unreadStreams(k *soak, ctx context.Context, r *rand.Rand) {
	a, err := dialGRPC(k, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	if err != nil {
		return
	}
	span := time.Duration(1+r.IntN(5)) * time.Second
	go func() {
		defer a.close()
		ctx, cancel := context.WithTimeout(ctx, span)
		defer cancel()
		stream, err := a.client.ModelStreamInfer(ctx)
		if err != nil {
			return
		}
		for range 8 {
			if stream.Send(numbers(question{model: "counts", shape: []int64{1}}, 100_000).message()) != nil {
				return
			}
		}
		<-ctx.Done()
	}()
}

func shortDeadlines(k *soak, ctx context.Context, r *rand.Rand) {
	withGRPC(k, nil, func(a *grpcAsker) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(60))*time.Millisecond)
		defer cancel()
		_, _ = a.infer(ctx, numbers(question{model: "sleeps", shape: []int64{1}}, int32(r.IntN(300))))
	})
}

// resets begins fifty calls and cancels each at once.
func resets(k *soak, ctx context.Context, r *rand.Rand) {
	withGRPC(k, nil, func(a *grpcAsker) {
		for range 50 {
			ctx, cancel := context.WithCancel(ctx)
			stream, err := a.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, streamMethod)
			if err == nil && r.IntN(2) == 0 {
				_ = stream.SendMsg(numbers(question{model: "counts", shape: []int64{1}}, 50).message())
			}
			cancel()
		}
	})
}

func wrongMessages(k *soak, ctx context.Context, r *rand.Rand) {
	q := numbers(question{model: steadyModels[r.IntN(len(steadyModels))], shape: []int64{1}}, 1)
	m := q.message()
	switch r.IntN(7) {
	case 0:
		m.Inputs[0].Shape = []int64{1 << 62, 8}
	case 1:
		m.RawInputContents = append(m.RawInputContents, make([]byte, 1<<20))
	case 2:
		m.RawInputContents = nil
	case 3:
		m.Inputs = append(m.Inputs, m.Inputs...)
	case 4:
		m.Inputs[0].Datatype = "BYTES"
		m.RawInputContents[0] = []byte{0xff, 0xff, 0xff, 0xff}
	case 5:
		m.Inputs[0].Shape = make([]int64, 10_000)
	default:
		m.Inputs[0].Contents = &kserve.InferTensorContents{IntContents: make([]int32, 100)}
	}
	withGRPC(k, nil, func(a *grpcAsker) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, _ = a.client.ModelInfer(ctx, m)
		_ = a.conn.Invoke(ctx, fmt.Sprintf("/inference.GRPCInferenceService/None%d", r.IntN(9)), &emptypb.Empty{}, &emptypb.Empty{})
	})
}

// noiseHTTP2 follows the preface with random frames that have a valid length.
func noiseHTTP2(k *soak, ctx context.Context, r *rand.Rand) {
	c := dial(ctx, k.server.grpc, false)
	if c == nil {
		return
	}
	defer c.Close()
	message := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for range r.IntN(20) {
		length := r.IntN(200)
		message = append(message, 0, 0, byte(length), byte(r.IntN(12)), byte(r.Uint32()), 0, 0, 0, byte(r.IntN(8)))
		message = append(message, randomBytes(r, length)...)
	}
	_, _ = c.Write(message)
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = c.Read(make([]byte, 4096))
}
