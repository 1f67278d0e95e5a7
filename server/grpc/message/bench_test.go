package message

import (
	"math"
	"strconv"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// benchRequests returns the messages that compare this package's decoder with generated code
// (docs/decisions/0018-grpc-codec.md).
func benchRequests() map[string]*kserve.ModelInferRequest {
	raw := func(inputs, size int) *kserve.ModelInferRequest {
		q := &kserve.ModelInferRequest{ModelName: "model", Id: "1", Outputs: []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0"}}}
		for i := range inputs {
			q.Inputs = append(q.Inputs, &kserve.ModelInferRequest_InferInputTensor{Name: "INPUT" + strconv.Itoa(i), Datatype: "UINT8", Shape: []int64{int64(size)}})
			q.RawInputContents = append(q.RawInputContents, make([]byte, size))
		}
		return q
	}
	sequence := raw(1, 4)
	sequence.Parameters = map[string]*kserve.InferParameter{
		"sequence_id":    {ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: 7}},
		"sequence_start": {ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: true}},
		"sequence_end":   {ParameterChoice: &kserve.InferParameter_BoolParam{BoolParam: false}},
	}
	typed := raw(1, 4)
	typed.RawInputContents = nil
	typed.Inputs[0].Datatype, typed.Inputs[0].Shape = "FP32", []int64{16 << 10}
	typed.Inputs[0].Contents = &kserve.InferTensorContents{Fp32Contents: make([]float32, 16<<10)}
	return map[string]*kserve.ModelInferRequest{"4B": raw(1, 4), "sequence": sequence, "1MiB": raw(1, 1<<20), "100inputs": raw(100, 4), "typed64KiB": typed}
}

// lent is a pool's memory with a single block.
type lent struct{ data []byte }

func (*lent) Retain()  {}
func (*lent) Release() {}

// BenchmarkDecode decodes each message in three ways: with this package, with generated code, which
// copies everything, and with generated code for all fields except raw_input_contents. It is
// internal because it measures the decoder without a stream.
func BenchmarkDecode(b *testing.B) {
	account := budget.New(budget.Config{Limit: 1 << 40})
	block := &lent{make([]byte, 2<<20)}
	alloc := func(n int) ([]byte, infer.Memory, error) { return block.data[:n], block, nil }
	for name, q := range benchRequests() {
		wire, err := proto.Marshal(q)
		if err != nil {
			b.Fatal(err)
		}
		var frames mem.BufferSlice
		for at := 0; at < len(wire); at += 16 << 10 {
			frames = append(frames, mem.SliceBuffer(wire[at:min(len(wire), at+16<<10)]))
		}
		received := make(mem.BufferSlice, len(frames))
		open := func(s *source, c *budget.Charge) {
			copy(received, frames)
			s.charge = c
			s.reset(len(wire), received)
		}
		b.Run(name+"/package", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := NewRequest(account, nil)
				var s source
				open(&s, &q.message.charge)
				if err := q.message.decode(&s, alloc); err != nil {
					b.Fatal(err)
				}
				q.Release()
			}
		})
		b.Run(name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := &kserve.ModelInferRequest{}
				if err := proto.Unmarshal(wire, q); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/mixed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := NewRequest(account, nil)
				var s source
				open(&s, &q.message.charge)
				if err := decodeMixed(&s, &kserve.ModelInferRequest{}, alloc); err != nil {
					b.Fatal(err)
				}
				q.Release()
			}
		})
	}
}

// decodeMixed copies raw_input_contents to their final memory and leaves the rest to generated
// code.
func decodeMixed(s *source, q *kserve.ModelInferRequest, alloc func(int) ([]byte, infer.Memory, error)) error {
	var rest []byte
	var raw [][]byte
	for s.left > 0 {
		tag, err := s.uvarint()
		if err != nil {
			return err
		}
		n, err := s.uvarint()
		if err != nil {
			return err
		}
		if tag>>3 == 7 {
			data, _, err := alloc(int(n))
			if err != nil {
				return err
			}
			raw = append(raw, data)
			if err := s.copyTo(data); err != nil {
				return err
			}
			continue
		}
		b, _, err := s.take(int(n))
		if err != nil {
			return err
		}
		if rest == nil {
			rest = make([]byte, 0, n+uint64(min(s.left, 256)))
		}
		rest = protowire.AppendBytes(protowire.AppendVarint(rest, tag), b)
	}
	if err := proto.Unmarshal(rest, q); err != nil {
		return err
	}
	q.RawInputContents = raw
	return nil
}

// benchBuffers charges nothing.
type benchBuffers struct{ BufferPool }

func (r *benchBuffers) Lend(n int) (*[]byte, error) { return r.Get(max(n, poolSmallest)), nil }

// BenchmarkEncode encodes responses with this package, and their non-tensor parts with generated
// code.
func BenchmarkEncode(b *testing.B) {
	lender := &benchBuffers{}
	for name, shape := range map[string]struct{ outputs, size int }{"4B": {1, 4}, "1MiB": {1, 1 << 20}, "100outputs": {100, 4}} {
		r := &infer.Response{Model: "model", Version: 1, ID: "1", Parameters: []infer.Parameter{{Name: "p", Kind: infer.IntParameter, Int: math.MaxInt32}}}
		for i := range shape.outputs {
			r.Outputs = append(r.Outputs, infer.Tensor{Name: "OUTPUT" + strconv.Itoa(i), DataType: infer.Uint8, Shape: []int64{int64(shape.size)}, Data: make([]byte, shape.size)})
		}
		b.Run(name+"/package", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				reply := ReplyOf(r)
				buffers, err := reply.Encode(Overdue{Buffers: lender})
				if err != nil {
					b.Fatal(err)
				}
				buffers.Free()
			}
		})
		b.Run(name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a := &kserve.ModelInferResponse{ModelName: r.Model, ModelVersion: strconv.FormatInt(r.Version, 10), Id: r.ID,
					Parameters: map[string]*kserve.InferParameter{}}
				for _, p := range r.Parameters {
					a.Parameters[p.Name] = &kserve.InferParameter{ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: p.Int}}
				}
				for i := range r.Outputs {
					t := &r.Outputs[i]
					a.Outputs = append(a.Outputs, &kserve.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.DataType.String(), Shape: t.Shape})
				}
				if _, err := proto.Marshal(a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
