package message

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/servertest"
)

// frames returns a reader of b that delivers frames of the given size, as a transport would.
func frames(b []byte, frame int) func(n int) (mem.BufferSlice, error) {
	return func(n int) (mem.BufferSlice, error) {
		if n > len(b) {
			return nil, io.ErrUnexpectedEOF
		}
		var out mem.BufferSlice
		for n > 0 {
			k := min(n, frame)
			out = append(out, mem.SliceBuffer(bytes.Clone(b[:k])))
			b, n = b[k:], n-k
		}
		return out, nil
	}
}

func decodeBytes(b []byte, frame int, alloc server.Allocator) (*message, error) {
	m := &message{charge: budget.Charge{Account: budget.New(budget.Config{Limit: 1 << 40})}}
	s := source{read: frames(b, frame), charge: &m.charge}
	s.reset(len(b), nil)
	defer s.close()
	return m, m.decode(&s, alloc)
}

// example returns a request with every kind of field.
func example() *kserve.ModelInferRequest {
	param := func(v any) *kserve.InferParameter {
		p := &kserve.InferParameter{}
		switch v := v.(type) {
		case bool:
			p.ParameterChoice = &kserve.InferParameter_BoolParam{BoolParam: v}
		case int64:
			p.ParameterChoice = &kserve.InferParameter_Int64Param{Int64Param: v}
		case string:
			p.ParameterChoice = &kserve.InferParameter_StringParam{StringParam: v}
		case float64:
			p.ParameterChoice = &kserve.InferParameter_DoubleParam{DoubleParam: v}
		case uint64:
			p.ParameterChoice = &kserve.InferParameter_Uint64Param{Uint64Param: v}
		}
		return p
	}
	return &kserve.ModelInferRequest{
		ModelName: "model", ModelVersion: "1", Id: "id",
		Parameters: map[string]*kserve.InferParameter{
			"a": param(true), "b": param(int64(-1)), "c": param("text"), "d": param(1.5), "e": param(uint64(math.MaxUint64)), "f": param(nil),
		},
		Inputs: []*kserve.ModelInferRequest_InferInputTensor{
			{Name: "A", Datatype: "FP32", Shape: []int64{1, -1, math.MaxInt64}, Parameters: map[string]*kserve.InferParameter{"x": param("y")}},
			{Name: "B", Datatype: "INT8", Shape: []int64{2}, Contents: &kserve.InferTensorContents{
				BoolContents: []bool{true, false}, IntContents: []int32{-1, 300}, Int64Contents: []int64{1 << 40}, UintContents: []uint32{7},
				Uint64Contents: []uint64{8}, Fp32Contents: []float32{1}, Fp64Contents: []float64{2}, BytesContents: [][]byte{nil, []byte("b")},
			}},
			{Name: "C", Datatype: "nonsense", Contents: &kserve.InferTensorContents{}},
		},
		Outputs: []*kserve.ModelInferRequest_InferRequestedOutputTensor{
			{Name: "O", Parameters: map[string]*kserve.InferParameter{"classification": param(int64(3))}}, {Name: "P"},
		},
		RawInputContents: [][]byte{{}, []byte("1234"), bytes.Repeat([]byte("x"), BlockSize+1)},
	}
}

// checkDecode checks that the decoder agrees with the protobuf library on a message.
func checkDecode(t *testing.T, b []byte, frame int) {
	t.Helper()
	want := &kserve.ModelInferRequest{}
	wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
	memory := servertest.Blocks{}
	got, err := decodeBytes(b, frame, memory.Allocate)
	defer func() {
		if n := memory.Lent.Load(); n != 0 {
			t.Errorf("%d blocks were not released", n)
		}
	}()
	defer got.release()
	var refused *infer.Error
	if errors.Is(err, errWeight) || errors.As(err, &refused) {
		return // the library has no such limits
	}
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("decode %.200x: got error %v, the library has %v", b, err, wantErr)
	}
	if err != nil {
		if err != errUnparsable {
			t.Fatalf("decode %.200x: got error %v, want %v", b, err, errUnparsable)
		}
		return
	}
	if a := got.proto(t, want); !proto.Equal(a, want) {
		t.Fatalf("decode %.200x:\n got %.500s\nwant %.500s", b, a, want)
	}
}

// proto converts a message to the library's type. The decoder keeps a data type as a number, so
// proto takes its text from like if the types match.
func (m *message) proto(t *testing.T, like *kserve.ModelInferRequest) *kserve.ModelInferRequest {
	t.Helper()
	params := func(in []param) map[string]*kserve.InferParameter {
		var out map[string]*kserve.InferParameter
		for _, p := range in {
			v := &kserve.InferParameter{}
			switch p.value.kind {
			case boolParam:
				v.ParameterChoice = &kserve.InferParameter_BoolParam{BoolParam: p.value.bits != 0}
			case int64Param:
				v.ParameterChoice = &kserve.InferParameter_Int64Param{Int64Param: int64(p.value.bits)}
			case stringParam:
				v.ParameterChoice = &kserve.InferParameter_StringParam{StringParam: p.value.string}
			case doubleParam:
				v.ParameterChoice = &kserve.InferParameter_DoubleParam{DoubleParam: math.Float64frombits(p.value.bits)}
			case uint64Param:
				v.ParameterChoice = &kserve.InferParameter_Uint64Param{Uint64Param: p.value.bits}
			}
			if out == nil {
				out = map[string]*kserve.InferParameter{}
			}
			out[p.name] = v
		}
		return out
	}
	a := &kserve.ModelInferRequest{ModelName: m.model, ModelVersion: m.version, Id: m.id, Parameters: params(m.params)}
	for i, in := range m.inputs {
		x := &kserve.ModelInferRequest_InferInputTensor{Name: in.name, Shape: in.shape, Parameters: params(in.params)}
		if i < len(like.Inputs) && infer.ParseDataType(like.Inputs[i].Datatype) == in.dataType {
			x.Datatype = like.Inputs[i].Datatype
		}
		if in.contents.given {
			x.Contents = &kserve.InferTensorContents{}
			if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(in.contents.wire, x.Contents); err != nil {
				t.Fatalf("contents %.200x: %v", in.contents.wire, err)
			}
		}
		a.Inputs = append(a.Inputs, x)
	}
	for _, out := range m.outputs {
		a.Outputs = append(a.Outputs, &kserve.ModelInferRequest_InferRequestedOutputTensor{Name: out.name, Parameters: params(out.params)})
	}
	for _, raw := range m.raw {
		a.RawInputContents = append(a.RawInputContents, raw.data)
	}
	return a
}

// FuzzDecode checks for arbitrary bytes in frames of any size that the decoder accepts the same
// messages as the protobuf library and agrees on their content. It is internal because a Request
// has no message.
func FuzzDecode(f *testing.F) {
	whole, err := proto.Marshal(example())
	if err != nil {
		f.Fatal(err)
	}
	bit := func(num protowire.Number, body ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), body)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, seed := range [][]byte{
		whole, whole[:len(whole)-1], nil,
		join(bit(7, 1, 2), bit(1, 'm'), bit(7), bit(1, 'n')),              // any order; the last name counts
		join(bit(5, bit(5, bit(2, 1, 2)...)...), bit(5)),                  // packed contents
		bit(5, join(bit(5, 0x10, 1), bit(5, bit(2, 2, 3)...), bit(5))...), // contents in three pieces, not packed and packed
		bit(5, 0x18, 1, 0x1a, 2, 5, 6),                                    // shape, packed and not packed
		bit(4, join(bit(2, 0x08, 1), bit(1, 'k'), bit(2, 0x10, 2))...),    // a map entry, its value first and twice
		bit(4), bit(4, 0x0a, 0), bit(4, bit(2)...), // without key, without value
		join(bit(4, bit(1, 'k')...), bit(4, join(bit(1, 'k'), bit(2, 0x08, 0))...)), // the same key twice
		{0x08, 1}, {0x0d, 1, 2, 3, 4}, {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, // known numbers with other wire types
		{0x0b, 0x0c}, {0x0b, 0x13, 0x14, 0x0c}, {0x0b, 0x14}, {0x0c}, {0x0b}, {0x0b, 15}, // groups
		{0x0e}, {0x07}, {0x00}, {0x02, 0}, {0xfa, 0xff, 0xff, 0xff, 0x0f, 0}, {0xfa, 0xff, 0xff, 0xff, 0x1f, 0},
		bit(1, 0xff), bit(5, bit(2, 0xc0)...), bit(4, bit(1, 0xff)...), bit(4, bit(2, bit(3, 0x80)...)...), // not UTF-8
		{0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f}, {0x3a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02},
		bit(5, bit(5, bit(6, 1, 2, 3)...)...), bit(5, bit(5, bit(7, 1, 2, 3, 4, 5, 6, 7, 8)...)...), bit(5, bit(5, bit(1, 0x80)...)...),
		bit(7, bytes.Repeat([]byte{1}, 5000)...), bit(100, bytes.Repeat([]byte{1}, 5000)...),
	} {
		f.Add(seed, uint16(3))
		f.Add(seed, uint16(16384))
	}
	f.Fuzz(func(t *testing.T, b []byte, frame uint16) {
		checkDecode(t, b, max(1, int(frame)))
	})
}

// TestDecodeTakesNestedGroups checks that groups may be nested as deeply as the library allows. It
// is internal like FuzzDecode.
func TestDecodeTakesNestedGroups(t *testing.T) {
	for _, depth := range []int{1, 100, maxDepth - 1, 2 * maxDepth} {
		b := append(bytes.Repeat([]byte{0x43}, depth), bytes.Repeat([]byte{0x44}, depth)...)
		checkDecode(t, b, 1000)
	}
}
