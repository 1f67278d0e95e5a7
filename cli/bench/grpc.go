package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/panics"
)

// callersPerConnection is how many callers share a connection, as in Triton's clients.
const callersPerConnection = 6

// grpcTarget is a server over gRPC.
type grpcTarget struct {
	*prepared
	control     *grpc.ClientConn
	client      grpcservice.GRPCInferenceServiceClient
	connections []*grpc.ClientConn // bound: mostCallers
	bodies      [][]byte           // of the samples, without the parts that differ among callers
}

func newGRPCTarget(p *prepared) (*grpcTarget, error) {
	t := &grpcTarget{prepared: p}
	var err error
	if t.control, err = t.dial(min(t.options.maxReply, mostControl)); err != nil {
		return nil, err
	}
	t.client = grpcservice.NewGRPCInferenceServiceClient(t.control)
	return t, nil
}

// dial creates a connection for replies of at most most bytes.
func (t *grpcTarget) dial(most int) (*grpc.ClientConn, error) {
	address, by := t.options.server()
	transport := insecure.NewCredentials()
	if by != nil {
		transport = credentials.NewTLS(by)
	}
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(math.MaxInt32), grpc.ForceCodecV2(codec{})))
}

func (t *grpcTarget) close() {
	for _, c := range t.connections {
		_ = c.Close()
	}
	_ = t.control.Close()
}

// plain returns a gRPC error without its decoration.
func plain(err error) error {
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
	return err
}

func (t *grpcTarget) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.options.timeout)
}

func (t *grpcTarget) serverName(ctx context.Context) (string, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	reply, err := t.client.ServerMetadata(ctx, &kserve.ServerMetadataRequest{})
	if err != nil {
		return "", plain(err)
	}
	return reply.GetName() + " " + reply.GetVersion(), nil
}

func (t *grpcTarget) config(ctx context.Context) (*kserve.ModelConfig, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	reply, err := t.client.ModelConfig(ctx, &kserve.ModelConfigRequest{Name: t.options.model, Version: t.options.version})
	if err != nil {
		return nil, plain(err)
	}
	return reply.GetConfig(), nil
}

func (t *grpcTarget) index(ctx context.Context) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	reply, err := t.client.RepositoryIndex(ctx, &kserve.RepositoryIndexRequest{})
	return reply.GetModels(), err
}

func (t *grpcTarget) statistics(ctx context.Context) ([]*kserve.ModelStatistics, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	reply, err := t.client.ModelStatistics(ctx, &kserve.ModelStatisticsRequest{Name: t.options.model, Version: t.options.version})
	if err != nil {
		return nil, plain(err)
	}
	return reply.GetModelStats(), nil
}

func (t *grpcTarget) register(ctx context.Context, name, key string, size int64) error {
	ctx, cancel := t.within(ctx)
	defer cancel()
	_, err := t.client.SystemSharedMemoryRegister(ctx, &kserve.SystemSharedMemoryRegisterRequest{Name: name, Key: key, ByteSize: uint64(size)})
	return ignoreNil(err)
}

func (t *grpcTarget) unregister(ctx context.Context, name string) error {
	ctx, cancel := t.within(ctx)
	defer cancel()
	_, err := t.client.SystemSharedMemoryUnregister(ctx, &kserve.SystemSharedMemoryUnregisterRequest{Name: name})
	return ignoreNil(err)
}

func ignoreNil(err error) error {
	if err == nil {
		return nil
	}
	return plain(err)
}

// parameters converts the parameters of requests and tensors.
//
// bound: three parameters
func parameters(values map[string]any) map[string]*kserve.InferParameter {
	all := make(map[string]*kserve.InferParameter, len(values))
	for name, value := range values {
		switch v := value.(type) {
		case bool:
			all[name] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: v}}
		case string:
			all[name] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_StringParam{StringParam: v}}
		case int64:
			all[name] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: v}}
		}
	}
	return all
}

// encode encodes a request as a message.
//
// bound: the sample, and mostDescribed
func (t *grpcTarget) encode(index int, s sample, number int) ([]byte, error) {
	m := &kserve.ModelInferRequest{ModelName: t.options.model, ModelVersion: t.options.version}
	if t.options.protocol == protocolStream {
		m.Parameters = parameters(map[string]any{"triton_enable_empty_final_response": true})
	}
	for i := range s {
		in := &s[i]
		one := &kserve.ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.DataType.String(), Shape: in.Shape}
		if t.memory != nil {
			one.Parameters = parameters(t.memory.input(index, i))
		} else {
			m.RawInputContents = append(m.RawInputContents, in.Data)
		}
		m.Inputs = append(m.Inputs, one)
	}
	for i, output := range t.model.GetOutput() {
		one := &kserve.ModelInferRequest_InferRequestedOutputTensor{Name: output.GetName()}
		if t.memory != nil {
			one.Parameters = parameters(t.memory.output(number, i))
		}
		m.Outputs = append(m.Outputs, one)
	}
	return proto.Marshal(m)
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
		conn, err := t.dial(t.options.maxReply)
		if err != nil {
			return nil, err
		}
		t.connections = append(t.connections, conn)
	}
	c := &grpcCaller{target: t, conn: t.connections[at], bodies: t.bodies}
	if c.bodies == nil {
		for i, s := range t.samples {
			body, err := t.encode(i, s, number)
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
	more, err := proto.Marshal(&kserve.ModelInferRequest{Parameters: parameters(map[string]any{
		"sequence_id": int64(r.sequence), "sequence_start": r.start, "sequence_end": r.end,
	})})
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
	ctx, cancel := c.target.within(ctx)
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
	return brokenf("%v", plain(err))
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
	return proto.Unmarshal(b.ReadOnlyData(), m) // bound: the limit of dial
}
