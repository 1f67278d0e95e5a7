package message

import (
	"math"
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/infer"
)

// finalParam tells the client of a stream whether more responses follow.
const finalParam = "triton_final_response"

// Reply is a response, or an error of a stream, to be encoded.
type Reply struct {
	Model, Version, ID string
	Response           *infer.Response // its outputs and parameters

	// Stream selects a ModelStreamInferResponse. The fields below apply only to it.
	Stream   bool
	Err      string // error_message
	HasFinal bool   // a parameter triton_final_response is added
	Final    bool
}

// ReplyOf returns the reply for a response of the Core.
func ReplyOf(r *infer.Response) Reply {
	return Reply{Model: r.Model, Version: strconv.FormatInt(r.Version, 10), ID: r.ID, Response: r}
}

// Encode encodes r. The bytes of large tensors are not copied but lent to the transport, which
// frees them when it has copied them into its write buffer. Unless it fails, Encode takes ownership
// of r's response and releases it then. overdue provides the memory for the message, and closes the
// connection of a client that does not read.
//
// bound: lent has room for size
func (r *Reply) Encode(overdue Overdue) (mem.BufferSlice, error) {
	outputs := r.outputs()
	size := r.size(outputs)
	if err := sendable(size); err != nil {
		return nil, err
	}
	head := size + streamHead + len(r.Err)
	large := 0
	for i := range outputs {
		if n := len(outputs[i].Data); n > BlockSize {
			head -= n
			large++
		}
	}
	lent, err := overdue.lend(head)
	if err != nil {
		return nil, err
	}
	b := r.appendHead((*lent)[:0], size, outputs)

	buffered := bufferedResponse{response: r.Response, overdue: overdue}
	out := make(mem.BufferSlice, 0, 1+2*large)
	var heads mem.Buffer // the written parts, if lent tensors are between them
	start := 0
	for i := range outputs {
		t := &outputs[i]
		b = protowire.AppendTag(b, 6, protowire.BytesType) // bound: there is room
		b = protowire.AppendVarint(b, uint64(len(t.Data)))
		if len(t.Data) <= BlockSize {
			b = append(b, t.Data...)
			continue
		}
		if heads == nil {
			*lent = (*lent)[:head]
			heads = mem.NewBuffer(lent, overdue.Buffers)
		}
		out = append(out, heads.Slice(start, len(b)))
		start = len(b)
		if t.Memory == nil {
			out = append(out, mem.SliceBuffer(t.Data))
		} else {
			out = append(out, buffered.lend(t.Data))
		}
	}
	if heads == nil {
		*lent = b
		out = append(out, mem.NewBuffer(lent, overdue.Buffers))
	} else {
		if start < len(b) {
			out = append(out, heads.Slice(start, len(b)))
		}
		heads.Free()
	}
	buffered.done()
	return out, nil
}

// streamHead bounds the bytes of a ModelStreamInferResponse besides its error and its
// ModelInferResponse.
const streamHead = 16

// Copied encodes r in one piece, with the bytes of all tensors. The caller keeps r's response.
func (r *Reply) Copied() ([]byte, error) {
	outputs := r.outputs()
	size := r.size(outputs)
	if err := sendable(size); err != nil {
		return nil, err
	}
	b := r.appendHead(make([]byte, 0, size+streamHead+len(r.Err)), size, outputs) // bound: charged by the queue of replies
	for i := range outputs {
		b = protowire.AppendTag(b, 6, protowire.BytesType) // bound: there is room
		b = protowire.AppendVarint(b, uint64(len(outputs[i].Data)))
		b = append(b, outputs[i].Data...)
	}
	return b, nil
}

func (r *Reply) outputs() []infer.Tensor {
	if r.Response == nil {
		return nil
	}
	return r.Response.Outputs
}

func sendable(size int) error {
	if size > math.MaxInt32 {
		return invalid("Response has byte size %d which exceeds gRPC's byte size limit %d.", size, math.MaxInt32)
	}
	return nil
}

// size returns the length of the ModelInferResponse.
func (r *Reply) size(outputs []infer.Tensor) int {
	n := sizeString(r.Model) + sizeString(r.Version) + sizeString(r.ID)
	if r.Response != nil {
		for i := range r.Response.Parameters {
			n += 1 + protowire.SizeBytes(sizeParam(&r.Response.Parameters[i]))
		}
	}
	if r.HasFinal {
		n += sizeFinal
	}
	for i := range outputs {
		t := &outputs[i]
		n += 1 + protowire.SizeBytes(sizeOutput(t)) + 1 + protowire.SizeBytes(len(t.Data))
	}
	return n
}

// appendHead writes all fields except raw_output_contents. size is the length of the
// ModelInferResponse.
//
// bound: b has room for size
func (r *Reply) appendHead(b []byte, size int, outputs []infer.Tensor) []byte {
	if r.Stream {
		if r.Err != "" {
			b = appendString(b, 1, r.Err)
		}
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
	}
	b = appendText(b, 1, r.Model)
	b = appendText(b, 2, r.Version)
	b = appendText(b, 3, r.ID)
	if r.Response != nil {
		for i := range r.Response.Parameters {
			p := &r.Response.Parameters[i]
			b = protowire.AppendTag(b, 4, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(sizeParam(p)))
			b = appendParam(b, p)
		}
	}
	if r.HasFinal {
		p := infer.Parameter{Name: finalParam, Kind: infer.BoolParameter, Bool: r.Final}
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeParam(&p)))
		b = appendParam(b, &p)
	}
	for i := range outputs {
		t := &outputs[i]
		b = protowire.AppendTag(b, 5, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeOutput(t)))
		b = appendText(b, 1, t.Name)
		b = appendText(b, 2, t.DataType.String())
		if len(t.Shape) > 0 {
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(sizeShape(t.Shape)))
			for _, d := range t.Shape {
				b = protowire.AppendVarint(b, uint64(d))
			}
		}
	}
	return b
}

// Tags of fields below 16 take one byte.

func sizeOutput(t *infer.Tensor) int {
	n := sizeString(t.Name) + sizeString(t.DataType.String())
	if len(t.Shape) > 0 {
		n += 1 + protowire.SizeBytes(sizeShape(t.Shape))
	}
	return n
}

func sizeShape(shape []int64) (n int) {
	for _, d := range shape {
		n += protowire.SizeVarint(uint64(d))
	}
	return n
}

func sizeString(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// appendText omits an empty string, as proto3 does.
func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, num, s)
}

// sizeFinal is the encoded size of the parameter triton_final_response.
var sizeFinal = 1 + protowire.SizeBytes(sizeParam(&infer.Parameter{Name: finalParam, Kind: infer.BoolParameter}))

// sizeParam returns the length of a map entry of an InferParameter.
func sizeParam(p *infer.Parameter) int {
	return 1 + protowire.SizeBytes(len(p.Name)) + 1 + protowire.SizeBytes(sizeValue(p))
}

func sizeValue(p *infer.Parameter) int {
	switch p.Kind {
	case infer.BoolParameter:
		return 2
	case infer.IntParameter:
		return 1 + protowire.SizeVarint(uint64(p.Int))
	case infer.StringParameter:
		return 1 + protowire.SizeBytes(len(p.String))
	case infer.DoubleParameter:
		return 9
	}
	return 0
}

func appendParam(b []byte, p *infer.Parameter) []byte {
	b = appendString(b, 1, p.Name)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeValue(p)))
	switch p.Kind {
	case infer.BoolParameter:
		b = protowire.AppendTag(b, boolParam, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(p.Bool))
	case infer.IntParameter:
		b = protowire.AppendTag(b, int64Param, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(p.Int))
	case infer.StringParameter:
		b = appendString(b, stringParam, p.String)
	case infer.DoubleParameter:
		b = protowire.AppendTag(b, doubleParam, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(p.Double))
	}
	return b
}
