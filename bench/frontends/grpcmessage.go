package main

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
)

// inferMethod is the gRPC method that both servers are called with.
const inferMethod = "/inference.GRPCInferenceService/ModelInfer"

// Numbers of the tensor fields of ModelInferRequest and ModelInferResponse.
const (
	rawInputs  = 7
	rawOutputs = 6
)

// passing hands over messages in wire format, *mem.BufferSlice, so that neither the clients nor the
// bare server spend time on them.
type passing struct{}

func (passing) Name() string { return "proto" }

func (passing) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(*mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("encode a %T: want buffers", v)
	}
	message.Ref() // the library releases a reference after sending
	return *message, nil
}

func (passing) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*mem.BufferSlice)
	if !ok {
		return fmt.Errorf("decode into a %T: want buffers", v)
	}
	data.Ref()
	*message = data
	return nil
}

// requestMessage encodes a request, its tensor last.
func requestMessage(data []byte) (mem.BufferSlice, error) {
	head, err := proto.Marshal(&kserve.ModelInferRequest{
		ModelName: "identity_fp32",
		Inputs: []*kserve.ModelInferRequest_InferInputTensor{{
			Name: "INPUT0", Datatype: "FP32", Shape: []int64{int64(len(data) / 4)},
		}},
	})
	return withTensor(head, rawInputs, len(data), mem.BufferSlice{mem.SliceBuffer(data)}), err
}

// responseHead encodes the part of a response before the tensor.
func responseHead(size int) ([]byte, error) {
	return proto.Marshal(&kserve.ModelInferResponse{
		ModelName: "identity_fp32", ModelVersion: "1",
		Outputs: []*kserve.ModelInferResponse_InferOutputTensor{{
			Name: "OUTPUT0", Datatype: "FP32", Shape: []int64{int64(size / 4)},
		}},
	})
}

func withTensor(head []byte, field protowire.Number, size int, data mem.BufferSlice) mem.BufferSlice {
	head = protowire.AppendTag(head, field, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	return append(mem.BufferSlice{mem.SliceBuffer(head)}, data...)
}

// tensorIn finds the tensor at the end of a message and returns its offset and length.
func tensorIn(message mem.BufferSlice, field protowire.Number) (at, size int, err error) {
	// Everything before the tensor fits in here.
	head := make([]byte, min(message.Len(), 1024))
	if _, err := io.ReadFull(message.Reader(), head); err != nil {
		return 0, 0, err
	}
	for rest := head; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return 0, 0, protowire.ParseError(n)
		}
		rest = rest[n:]
		if number == field {
			length, n := protowire.ConsumeVarint(rest)
			if n < 0 {
				return 0, 0, protowire.ParseError(n)
			}
			at = len(head) - len(rest) + n
			if uint64(message.Len()-at) != length {
				return 0, 0, fmt.Errorf("tensor of %d bytes, want the last %d of the message", length, message.Len()-at)
			}
			return at, int(length), nil
		}
		if n = protowire.ConsumeFieldValue(number, kind, rest); n < 0 {
			return 0, 0, protowire.ParseError(n)
		}
		rest = rest[n:]
	}
	return 0, 0, errors.New("message without a tensor")
}
