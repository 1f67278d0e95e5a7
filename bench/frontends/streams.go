package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/kserve"
)

// streamMethod is the gRPC method for streams of both servers.
const streamMethod = "/inference.GRPCInferenceService/ModelStreamInfer"

// finalParameter marks the last response to a request, which is empty here.
const finalParameter = "triton_final_response"

// compareStreams prints how many responses of repeat_int32 one client receives over one stream with
// consecutive requests.
func (s *settings) compareStreams(ctx context.Context, nereid, bare *process) error {
	fmt.Printf("\nrepeat_int32 without delays, one request after the other over one gRPC stream\n\n")
	var table measure.Table
	table.Row("responses", "nereid", "request p50", "p99", "CPU of each", "bare", "request p50", "p99", "CPU of each", "rate", "CPU")
	table.Row("per request", "resp/s", "µs", "µs", "µs", "resp/s", "µs", "µs", "µs", "/ bare", "/ bare")
	for _, n := range s.responses {
		ours, theirs, err := s.compare(ctx, repeating(n), 1, nereid, bare)
		if err != nil {
			return fmt.Errorf("stream of %d responses: %w", n, err)
		}
		each := func(t measure.Times) time.Duration { return t.CPUEach() / time.Duration(n) }
		table.Row(n,
			ours.Rate()*float64(n), ours.Quantile(0.5), ours.Quantile(0.99), each(ours),
			theirs.Rate()*float64(n), theirs.Quantile(0.5), theirs.Quantile(0.99), each(theirs),
			ours.Rate()/theirs.Rate(), float64(each(ours))/float64(each(theirs)))
	}
	return table.Write(os.Stdout)
}

// streamClient sends one request after the other over one stream, and receives all responses to
// each.
type streamClient struct {
	conn      *grpc.ClientConn
	stream    grpc.ClientStream
	request   mem.BufferSlice
	responses int
}

// repeating returns a connector whose clients request n responses each time.
func repeating(n int) connector {
	return func(p *process) (client, error) {
		request, err := repeatRequest(n)
		if err != nil {
			return nil, err
		}
		conn, err := grpc.NewClient("passthrough:///"+p.grpc,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(passing{})))
		if err != nil {
			return nil, err
		}
		stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return &streamClient{conn, stream, request, n}, nil
	}
}

func (c *streamClient) close() error {
	err := c.stream.CloseSend()
	if end := c.stream.RecvMsg(new(mem.BufferSlice)); end != io.EOF {
		err = errors.Join(err, fmt.Errorf("end of the stream: %w", end))
	}
	return errors.Join(err, c.conn.Close())
}

// ask sends a request and receives its responses and the final empty one. With check it verifies
// each.
func (c *streamClient) ask(_ context.Context, check bool) error {
	if err := c.stream.SendMsg(&c.request); err != nil {
		return err
	}
	for i := range c.responses + 1 {
		var message mem.BufferSlice
		if err := c.stream.RecvMsg(&message); err != nil {
			return fmt.Errorf("response %d of %d: %w", i, c.responses, err)
		}
		var err error
		if check {
			err = c.check(i, message.Materialize())
		}
		message.Free()
		if err != nil {
			return fmt.Errorf("response %d of %d: %w", i, c.responses, err)
		}
	}
	return nil
}

func (c *streamClient) check(i int, data []byte) error {
	var message kserve.ModelStreamInferResponse
	if err := proto.Unmarshal(data, &message); err != nil {
		return err
	}
	if message.GetErrorMessage() != "" {
		return errors.New(message.GetErrorMessage())
	}
	response := message.GetInferResponse()
	last := response.GetParameters()[finalParameter].GetBoolParam()
	if last != (i == c.responses) {
		return fmt.Errorf("%s is %t", finalParameter, last)
	}
	if !last && (len(response.GetRawOutputContents()) != 2 || int(intOf(response.GetRawOutputContents()[0])) != i) {
		return fmt.Errorf("outputs are %v, want OUT to be %d", response.GetRawOutputContents(), i)
	}
	return nil
}

func intOf(data []byte) uint32 {
	if len(data) != 4 {
		return 1 << 31
	}
	return binary.LittleEndian.Uint32(data)
}

// repeatRequest encodes a request to repeat_int32 with n elements and without delays.
func repeatRequest(n int) (mem.BufferSlice, error) {
	var values []byte
	for i := range n {
		values = binary.LittleEndian.AppendUint32(values, uint32(i))
	}
	input := func(name, datatype string, length int) *kserve.ModelInferRequest_InferInputTensor {
		return &kserve.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: []int64{int64(length)}}
	}
	data, err := proto.Marshal(&kserve.ModelInferRequest{
		ModelName: "repeat_int32",
		Parameters: map[string]*kserve.InferParameter{
			"triton_enable_empty_final_response": {ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: true}},
		},
		Inputs: []*kserve.ModelInferRequest_InferInputTensor{
			input("IN", "INT32", n), input("DELAY", "UINT32", n), input("WAIT", "UINT32", 1),
		},
		RawInputContents: [][]byte{values, make([]byte, 4*n), make([]byte, 4)},
	})
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

// answerStream answers each request like repeat_int32.
func answerStream(stream grpc.ServerStream) error {
	for {
		var message mem.BufferSlice
		if err := stream.RecvMsg(&message); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		var request kserve.ModelInferRequest
		err := proto.Unmarshal(message.Materialize(), &request)
		message.Free()
		if err != nil || len(request.GetRawInputContents()) == 0 {
			return errors.Join(errors.New("want a request with raw inputs"), err)
		}
		values := request.GetRawInputContents()[0]
		for i := range len(values)/4 + 1 {
			response := &kserve.ModelInferResponse{ModelName: "repeat_int32", ModelVersion: "1"}
			if i < len(values)/4 {
				response.Outputs = []*kserve.ModelInferResponse_InferOutputTensor{
					{Name: "OUT", Datatype: "INT32", Shape: []int64{1}}, {Name: "IDX", Datatype: "UINT32", Shape: []int64{1}},
				}
				response.RawOutputContents = [][]byte{values[4*i : 4*i+4], binary.LittleEndian.AppendUint32(nil, uint32(i))}
			}
			response.Parameters = map[string]*kserve.InferParameter{
				finalParameter: {ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: i == len(values)/4}},
			}
			data, err := proto.Marshal(&kserve.ModelStreamInferResponse{InferResponse: response})
			if err != nil {
				return err
			}
			if err := stream.SendMsg(&mem.BufferSlice{mem.SliceBuffer(data)}); err != nil {
				return err
			}
		}
	}
}
