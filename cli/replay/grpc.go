package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server/recording"
)

// grpcSender sends over gRPC, with a stream for each request to a decoupled model.
type grpcSender struct {
	address *client.Address
	key     string // of the recording
	conn    *grpc.ClientConn
	client  grpcservice.GRPCInferenceServiceClient
	err     error // the connection could not be created
}

func newGRPC(o *options) *grpcSender {
	s := &grpcSender{address: o.grpcAddress, key: o.key}
	if s.conn, s.err = s.address.GRPC(0); s.err == nil { // each call has its own limit
		s.client = grpcservice.NewGRPCInferenceServiceClient(s.conn)
	}
	return s
}

func (s *grpcSender) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// send implements sender.
//
// bound: the record
func (s *grpcSender) send(ctx context.Context, r *recording.Record) ([]recording.Message, error) {
	if s.err != nil {
		return nil, s.err
	}
	q := requestOf(r).Message()
	if s.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, recording.Header, s.key)
	}
	if r.Decoupled {
		return s.stream(ctx, q, mostAnswered(r))
	}
	reply, err := s.client.ModelInfer(ctx, q, grpc.MaxCallRecvMsgSize(int(mostAnswered(r))))
	if err != nil {
		return s.refused(ctx, err, mostAnswered(r))
	}
	m, err := decodeGRPC(reply)
	if err != nil {
		return nil, err
	}
	return []recording.Message{*m}, nil
}

// refused returns the server's error that ended a call, if the server sent one. most is the maximum
// size of a message in bytes.
func (s *grpcSender) refused(ctx context.Context, err error, most int64) ([]recording.Message, error) {
	told := status.Convert(err)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer from %s: %w", s.address, ctx.Err())
	case told.Code() == codes.Unavailable && strings.Contains(told.Message(), "Error while dialing: "):
		_, why, _ := strings.Cut(strings.TrimSuffix(told.Message(), `"`), "Error while dialing: ")
		return nil, &unreachableError{s.address, errors.New(why + "; requests to decoupled models need the gRPC endpoint: give its address with --grpc-url")}
	case told.Code() == codes.ResourceExhausted && strings.HasPrefix(told.Message(), "grpc: received message larger than max"):
		return nil, &longError{most}
	case told.Code() == codes.Unavailable && isTransport(told.Message()):
		return nil, errors.New(told.Message())
	}
	return []recording.Message{{Err: &infer.Error{Message: told.Message()}}}, nil
}

// isTransport reports whether the text of an Unavailable error comes from the transport instead of
// the server.
func isTransport(text string) bool {
	for _, begin := range []string{"connection error: ", "error reading from server: ", "closing transport due to: ", "name resolver error: "} {
		if len(text) > len(begin) && text[:len(begin)] == begin {
			return true
		}
	}
	return false
}

// stream sends a request on its own stream, and reads up to the final response, within the limit on
// bytes.
//
// bound: most
func (s *grpcSender) stream(ctx context.Context, q *kserve.ModelInferRequest, most int64) (answers []recording.Message, err error) {
	maps.Copy(q.Parameters, client.Parameters([]infer.Parameter{client.Bool("triton_enable_empty_final_response", true)}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.ModelStreamInfer(ctx, grpc.MaxCallRecvMsgSize(int(most)))
	if err == nil {
		err = stream.Send(q)
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = stream.CloseSend()
	}
	if err != nil {
		return s.refused(ctx, err, most)
	}
	for left := most; ; {
		reply, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return answers, nil
		case err != nil:
			told, err := s.refused(ctx, err, most)
			return append(answers, told...), err
		}
		response := reply.GetInferResponse()
		overhead := perAnswer*(1+len(response.GetOutputs())) + perParameter*len(response.GetParameters())
		if left -= int64(overhead + proto.Size(reply)); left < 0 {
			return nil, &longError{most}
		}
		if text := reply.GetErrorMessage(); text != "" {
			answers = append(answers, recording.Message{Err: &infer.Error{Message: text}})
			continue
		}
		m, err := decodeGRPC(response)
		if err != nil {
			return nil, err
		}
		final := response.GetParameters()["triton_final_response"].GetBoolParam()
		if final && len(m.Tensors) == 0 && len(m.Parameters) <= 1 {
			continue // only the final flag
		}
		answers = append(answers, *m)
	}
}

// bound: the reply, of at most mostAnswered bytes
func decodeGRPC(reply *kserve.ModelInferResponse) (*recording.Message, error) {
	m := &recording.Message{ID: reply.GetId()}
	for name, value := range reply.GetParameters() {
		p := infer.Parameter{Name: name}
		switch v := value.GetParameterChoice().(type) {
		case *kserve.InferParameter_StringParam:
			p.Kind, p.String = infer.StringParameter, v.StringParam
		case *kserve.InferParameter_BoolParam:
			p.Kind, p.Bool = infer.BoolParameter, v.BoolParam
		case *kserve.InferParameter_Int64Param:
			p.Kind, p.Int = infer.IntParameter, v.Int64Param
		case *kserve.InferParameter_Uint64Param:
			p.Kind, p.Int = infer.IntParameter, int64(v.Uint64Param) //nolint:gosec // it is only displayed
		case *kserve.InferParameter_DoubleParam:
			p.Kind, p.Double = infer.DoubleParameter, v.DoubleParam
		}
		m.Parameters = append(m.Parameters, p)
	}
	slices.SortFunc(m.Parameters, func(a, b infer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	raw := reply.GetRawOutputContents()
	if len(raw) != len(reply.GetOutputs()) {
		return nil, fmt.Errorf("the response has %d outputs and the bytes of %d", len(reply.GetOutputs()), len(raw))
	}
	for i, out := range reply.GetOutputs() {
		m.Tensors = append(m.Tensors, recording.Tensor{Tensor: infer.Tensor{Name: out.GetName(), DataType: infer.ParseDataType(out.GetDatatype()), Shape: out.GetShape(), Data: raw[i]}})
	}
	return m, nil
}
