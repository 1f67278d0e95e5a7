package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/panics"
)

// callersPerConnection is how many callers share a connection, as in Triton's clients.
const callersPerConnection = 6

// grpcTarget is a server over gRPC.
type grpcTarget struct {
	*prepared
	connections []*grpc.ClientConn // bound: mostCallers
	bodies      [][]byte           // of the samples, without the parts that differ among callers
}

func (t *grpcTarget) close() {
	for _, c := range t.connections {
		_ = c.Close()
	}
}

// grpcCaller sends requests over a shared connection, on its own stream if the protocol is
// "stream".
type grpcCaller struct {
	target *grpcTarget
	conn   *grpc.ClientConn
	bodies [][]byte // bound: the samples

	stream grpc.ClientStream
	cancel context.CancelFunc // of the stream
}

func (t *grpcTarget) newCaller(number int) (caller, error) {
	at := number / callersPerConnection
	for len(t.connections) <= at {
		conn, err := t.options.address.GRPC(t.options.maxReply, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
		if err != nil {
			return nil, err
		}
		t.connections = append(t.connections, conn)
	}
	c := &grpcCaller{target: t, conn: t.connections[at], bodies: t.bodies}
	if c.bodies == nil {
		for i, s := range t.samples {
			body, err := proto.Marshal(t.request(i, s, number).Message()) // bound: the sample, and mostDescribed
			if err != nil {
				return nil, err
			}
			c.bodies = append(c.bodies, body)
		}
		if t.memory == nil {
			t.bodies = c.bodies
		}
	}
	return c, nil
}

func (c *grpcCaller) close() {
	if c.stream != nil {
		_ = c.stream.CloseSend()
		c.cancel()
		c.stream = nil
	}
}

// body returns the message of a request. Sequence parameters are appended, which protobuf allows.
//
// bound: the sample
func (c *grpcCaller) body(r request) ([]byte, error) {
	body := c.bodies[r.sample]
	if r.sequence == 0 {
		return body, nil
	}
	more, err := proto.Marshal((&client.Request{Parameters: []infer.Parameter{
		client.Int("sequence_id", int64(r.sequence)), client.Bool("sequence_start", r.start), client.Bool("sequence_end", r.end),
	}}).Message())
	return append(body[:len(body):len(body)], more...), err
}

func (c *grpcCaller) call(ctx context.Context, r request) (outcome, error) {
	body, err := c.body(r)
	if err != nil {
		return outcome{}, err
	}
	if c.target.options.protocol == protocolStream {
		return c.exchange(ctx, body)
	}
	ctx, cancel := context.WithTimeout(ctx, c.target.options.timeout)
	defer cancel()
	if err := c.conn.Invoke(ctx, grpcservice.GRPCInferenceService_ModelInfer_FullMethodName, body, &discard{}); err != nil {
		return outcome{}, c.failed(err)
	}
	return outcome{responses: 1}, nil
}

func (c *grpcCaller) failed(err error) error {
	s := status.Convert(err)
	return &failure{s.Code().String() + ": " + s.Message(), s.Code().String() == "Unavailable"}
}

// exchange sends a request on the stream and reads its responses up to the final one.
func (c *grpcCaller) exchange(ctx context.Context, body []byte) (a outcome, refused error) {
	if c.stream == nil {
		open, cancel := context.WithCancel(ctx)
		s, err := c.conn.NewStream(open, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, grpcservice.GRPCInferenceService_ModelStreamInfer_FullMethodName)
		if err != nil {
			cancel()
			return a, c.failed(err)
		}
		c.stream, c.cancel = s, cancel
	}
	late := panics.AfterFunc(zerolog.Nop(), panics.Request, c.target.options.timeout, c.cancel, nil)
	defer late.Stop()
	if err := c.stream.SendMsg(body); err != nil {
		return a, c.lost(err)
	}
	for {
		var reply kserve.ModelStreamInferResponse
		if err := c.stream.RecvMsg(&reply); err != nil {
			return a, c.lost(err)
		}
		final := reply.GetInferResponse().GetParameters()["triton_final_response"].GetBoolParam()
		if text := reply.GetErrorMessage(); text != "" {
			refused, final = &failure{text: text}, true
		} else if len(reply.GetInferResponse().GetOutputs()) > 0 || !final {
			if a.responses++; a.responses == 1 {
				a.first = now()
			}
		}
		if final {
			return a, refused
		}
	}
}

// lost closes the stream.
func (c *grpcCaller) lost(err error) error {
	if again := c.stream.RecvMsg(&kserve.ModelStreamInferResponse{}); again != nil && !errors.Is(err, again) {
		err = again // the actual reason; sending reported only the end
	}
	c.close()
	return brokenf("%v", client.Plain(err))
}

// codec sends encoded messages unchanged, and drops messages that are never read.
type codec struct{}

type discard struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case []byte:
		return mem.BufferSlice{mem.SliceBuffer(m)}, nil
	case proto.Message:
		b, err := proto.Marshal(m) // bound: requests of fixed size
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, errors.New("bench: a message of type " + strconv.Quote(fmt.Sprintf("%T", v))) // bound: the name of a type
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return nil
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return proto.Unmarshal(b.ReadOnlyData(), m) // bound: the limit of the connection
}
