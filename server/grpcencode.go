package server

import (
	"math"
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/infer"
)

// grpcFinalParam tells the client of a stream whether more responses follow.
const grpcFinalParam = "triton_final_response"

// grpcAnswer is a response on its way to the wire.
type grpcAnswer struct {
	model, version, id string
	response           *infer.Response // its outputs and parameters

	// The rest is of a ModelStreamInferResponse, which stream asks for.
	stream   bool
	err      string // error_message
	hasFinal bool   // a parameter triton_final_response is added
	final    bool
}

// grpcAnswerOf describes a response of the Core.
func grpcAnswerOf(r *infer.Response) grpcAnswer {
	return grpcAnswer{model: r.Model, version: strconv.FormatInt(r.Version, 10), id: r.ID, response: r}
}

// encode makes the message of a: what describes the tensors is written by hand,
// and the bytes of large tensors not at all; they are lent to the transport,
// which gives them back when it has put them into its own write buffer. Unless it
// fails, it takes over a's response, to be released then. overdue is for a client
// that does not read.
func (a *grpcAnswer) encode(overdue grpcOverdue) (mem.BufferSlice, error) {
	outputs := a.outputs()
	size := a.size(outputs)
	if err := grpcSendable(size); err != nil {
		return nil, err
	}
	head := size + grpcStreamHead + len(a.err)
	large := 0
	for i := range outputs {
		if n := len(outputs[i].Data); n > grpcBlockSize {
			head -= n
			large++
		}
	}
	b := a.appendHead(make([]byte, 0, head), size, outputs)

	loan := grpcLoan{response: a.response, overdue: overdue}
	out := make(mem.BufferSlice, 0, 1+2*large)
	for i := range outputs {
		t := &outputs[i]
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(t.Data)))
		if len(t.Data) <= grpcBlockSize {
			b = append(b, t.Data...)
			continue
		}
		out = append(out, mem.SliceBuffer(b))
		b = b[len(b):]
		if t.Memory == nil {
			out = append(out, mem.SliceBuffer(t.Data))
		} else {
			out = append(out, loan.lend(t.Data))
		}
	}
	if len(b) > 0 {
		out = append(out, mem.SliceBuffer(b))
	}
	loan.done()
	return out, nil
}

// grpcStreamHead is more than what a ModelStreamInferResponse has besides its
// error and its ModelInferResponse.
const grpcStreamHead = 16

// copied makes the message of a in one piece, with the bytes of all tensors. a's
// response stays the caller's.
func (a *grpcAnswer) copied() ([]byte, error) {
	outputs := a.outputs()
	size := a.size(outputs)
	if err := grpcSendable(size); err != nil {
		return nil, err
	}
	b := a.appendHead(make([]byte, 0, size+grpcStreamHead+len(a.err)), size, outputs)
	for i := range outputs {
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(outputs[i].Data)))
		b = append(b, outputs[i].Data...)
	}
	return b, nil
}

func (a *grpcAnswer) outputs() []infer.Tensor {
	if a.response == nil {
		return nil
	}
	return a.response.Outputs
}

func grpcSendable(size int) error {
	if size > math.MaxInt32 {
		return grpcInvalid("Response has byte size %d which exceeds gRPC's byte size limit %d.", size, math.MaxInt32)
	}
	return nil
}

// size returns the length of the ModelInferResponse.
func (a *grpcAnswer) size(outputs []infer.Tensor) int {
	n := grpcSizeString(a.model) + grpcSizeString(a.version) + grpcSizeString(a.id)
	if a.response != nil {
		for i := range a.response.Parameters {
			n += 1 + protowire.SizeBytes(grpcSizeParam(&a.response.Parameters[i]))
		}
	}
	if a.hasFinal {
		n += grpcSizeFinal
	}
	for i := range outputs {
		t := &outputs[i]
		n += 1 + protowire.SizeBytes(grpcSizeOutput(t)) + 1 + protowire.SizeBytes(len(t.Data))
	}
	return n
}

// appendHead writes all fields but raw_output_contents. Size is that of the
// ModelInferResponse.
func (a *grpcAnswer) appendHead(b []byte, size int, outputs []infer.Tensor) []byte {
	if a.stream {
		if a.err != "" {
			b = grpcAppendString(b, 1, a.err)
		}
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
	}
	b = grpcAppendText(b, 1, a.model)
	b = grpcAppendText(b, 2, a.version)
	b = grpcAppendText(b, 3, a.id)
	if a.response != nil {
		for i := range a.response.Parameters {
			p := &a.response.Parameters[i]
			b = protowire.AppendTag(b, 4, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(grpcSizeParam(p)))
			b = grpcAppendParam(b, p)
		}
	}
	if a.hasFinal {
		p := infer.Parameter{Name: grpcFinalParam, Kind: infer.BoolParameter, Bool: a.final}
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(grpcSizeParam(&p)))
		b = grpcAppendParam(b, &p)
	}
	for i := range outputs {
		t := &outputs[i]
		b = protowire.AppendTag(b, 5, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(grpcSizeOutput(t)))
		b = grpcAppendText(b, 1, t.Name)
		b = grpcAppendText(b, 2, t.DataType.String())
		if len(t.Shape) > 0 {
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(grpcSizeShape(t.Shape)))
			for _, d := range t.Shape {
				b = protowire.AppendVarint(b, uint64(d))
			}
		}
	}
	return b
}

// Tags of fields below 16 take one byte.

func grpcSizeOutput(t *infer.Tensor) int {
	n := grpcSizeString(t.Name) + grpcSizeString(t.DataType.String())
	if len(t.Shape) > 0 {
		n += 1 + protowire.SizeBytes(grpcSizeShape(t.Shape))
	}
	return n
}

func grpcSizeShape(shape []int64) (n int) {
	for _, d := range shape {
		n += protowire.SizeVarint(uint64(d))
	}
	return n
}

func grpcSizeString(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

func grpcAppendString(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// grpcAppendText leaves an empty string out, as proto3 does.
func grpcAppendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return grpcAppendString(b, num, s)
}

// grpcSizeFinal is what the parameter triton_final_response adds to a message.
var grpcSizeFinal = 1 + protowire.SizeBytes(grpcSizeParam(&infer.Parameter{Name: grpcFinalParam, Kind: infer.BoolParameter}))

// grpcSizeParam returns the length of a map entry of an InferParameter.
func grpcSizeParam(p *infer.Parameter) int {
	return 1 + protowire.SizeBytes(len(p.Name)) + 1 + protowire.SizeBytes(grpcSizeValue(p))
}

func grpcSizeValue(p *infer.Parameter) int {
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

func grpcAppendParam(b []byte, p *infer.Parameter) []byte {
	b = grpcAppendString(b, 1, p.Name)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(grpcSizeValue(p)))
	switch p.Kind {
	case infer.BoolParameter:
		b = protowire.AppendTag(b, grpcBool, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(p.Bool))
	case infer.IntParameter:
		b = protowire.AppendTag(b, grpcInt64, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(p.Int))
	case infer.StringParameter:
		b = grpcAppendString(b, grpcString, p.String)
	case infer.DoubleParameter:
		b = protowire.AppendTag(b, grpcDouble, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(p.Double))
	}
	return b
}
