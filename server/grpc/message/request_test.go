package message_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// wire is the library's transport of a stream with one message of size bytes.
type wire struct {
	grpc.ServerTransportStream
	size  int
	begun bool
	read  func(n int) (mem.BufferSlice, error)
}

func (w *wire) ReadMessageHeader(header []byte) error {
	if w.begun {
		return io.EOF
	}
	w.begun, header[0] = true, 0
	binary.BigEndian.PutUint32(header[1:], uint32(w.size))
	return nil
}

func (w *wire) Read(n int) (mem.BufferSlice, error) { return w.read(n) }

func (w *wire) RecvCompress() string { return "" }

// stream is the stream of a wire.
type stream struct {
	grpc.ServerStream
	wire *wire
}

func (s stream) Context() context.Context {
	return grpc.NewContextWithServerTransportStream(context.Background(), s.wire)
}

// receiver returns a receiver of a wire's message. It is closed before the memory of the message is
// released.
func receiver(w *wire) *message.Receiver {
	r := &message.Receiver{}
	r.Init(&message.ReceiverConfig{MaxBytes: math.MaxInt32}, stream{wire: w}, nil)
	return r
}

// of returns the wire of a message.
func of(b []byte) *wire {
	return &wire{size: len(b), read: func(n int) (mem.BufferSlice, error) {
		piece := bytes.Clone(b[:n])
		b = b[n:]
		return mem.BufferSlice{mem.SliceBuffer(piece)}, nil
	}}
}

// receive receives a request, whose memory is charged to an account.
func receive(b []byte, account *budget.Account) (*message.Request, error) {
	q, r := message.NewRequest(account, nil), receiver(of(b))
	defer r.Close()
	return q, q.Receive(r, nil)
}

// field appends a field of bytes to a message.
func field(message []byte, number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), b)
}

// TestReceiveAllocatesArrivedBytesOnly checks that nothing large is allocated for messages that
// announce bytes that never arrive.
func TestReceiveAllocatesArrivedBytesOnly(t *testing.T) {
	for _, head := range [][]byte{
		{0x3a, 0x80, 0x80, 0x80, 0x80, 0x07}, // raw contents of 1.75 GiB
		{0x2a, 0x80, 0x80, 0x80, 0x80, 0x07}, // an input of 1.75 GiB
		{0x32, 0x80, 0x80, 0x80, 0x80, 0x07}, // an output of 1.75 GiB
	} {
		account := budget.New(budget.Config{Limit: 1 << 30})
		q := message.NewRequest(account, nil)
		sent := 0
		r := receiver(&wire{size: math.MaxInt32, read: func(n int) (mem.BufferSlice, error) {
			if sent >= 1<<20 {
				return nil, io.ErrUnexpectedEOF
			}
			b := make([]byte, n)
			sent += copy(b, head)
			head = nil
			sent += n
			return mem.BufferSlice{mem.SliceBuffer(b)}, nil
		}})
		err := q.Receive(r, func(n int) ([]byte, infer.Memory, error) {
			t.Errorf("allocated %d bytes of which %d had arrived", n, sent)
			return nil, nil, errors.New("no memory")
		})
		if err != io.ErrUnexpectedEOF {
			t.Errorf("got error %v, want %v", err, io.ErrUnexpectedEOF)
		}
		if used := account.Total(); used > 8<<20 {
			t.Errorf("%d bytes were charged for 1 MiB that arrived", used)
		}
		r.Close()
		q.Release()
		if used := account.Total(); used != 0 {
			t.Errorf("%d bytes are still charged", used)
		}
	}
}

// TestReceiveRefusesHeavyMessages checks that messages that are small on the wire but large in
// memory are rejected.
func TestReceiveRefusesHeavyMessages(t *testing.T) {
	for name, bit := range map[string][]byte{
		"inputs": {0x2a, 0}, "outputs": {0x32, 0}, "raw": {0x3a, 0}, "parameters": {0x22, 0},
		"dimensions": append([]byte{0x2a, 0x82, 0x20, 0x1a, 0xff, 0x1f}, make([]byte, 4095)...),
	} {
		q, err := receive(bytes.Repeat(bit, 4<<20/len(bit)), budget.New(budget.Config{Limit: 1 << 40}))
		q.Release()
		var refused *message.OutOfMemory
		if !errors.As(err, &refused) || refused.Text != "the request has too many inputs, outputs, parameters or dimensions" {
			t.Errorf("%s: got error %v, want that the request has too many of them", name, err)
		}
	}
}

// TestTypedContentsBecomeBytes checks the conversion of each field of InferTensorContents to bytes.
func TestTypedContentsBecomeBytes(t *testing.T) {
	for _, test := range []struct {
		typ  infer.DataType
		in   *kserve.InferTensorContents
		want string
		err  string
	}{
		{infer.Bool, &kserve.InferTensorContents{BoolContents: []bool{true, false}}, "\x01\x00", ""},
		{infer.Int8, &kserve.InferTensorContents{IntContents: []int32{-1, 300}}, "\xff\x2c", ""},
		{infer.Int16, &kserve.InferTensorContents{IntContents: []int32{-2}}, "\xfe\xff", ""},
		{infer.Int32, &kserve.InferTensorContents{IntContents: []int32{-2}}, "\xfe\xff\xff\xff", ""},
		{infer.Int64, &kserve.InferTensorContents{Int64Contents: []int64{-2}}, "\xfe\xff\xff\xff\xff\xff\xff\xff", ""},
		{infer.Uint8, &kserve.InferTensorContents{UintContents: []uint32{257}}, "\x01", ""},
		{infer.Uint16, &kserve.InferTensorContents{UintContents: []uint32{257}}, "\x01\x01", ""},
		{infer.Uint32, &kserve.InferTensorContents{UintContents: []uint32{257}}, "\x01\x01\x00\x00", ""},
		{infer.Uint64, &kserve.InferTensorContents{Uint64Contents: []uint64{257}}, "\x01\x01\x00\x00\x00\x00\x00\x00", ""},
		{infer.FP32, &kserve.InferTensorContents{Fp32Contents: []float32{1}}, "\x00\x00\x80?", ""},
		{infer.FP64, &kserve.InferTensorContents{Fp64Contents: []float64{1}}, "\x00\x00\x00\x00\x00\x00\xf0?", ""},
		{infer.Bytes, &kserve.InferTensorContents{BytesContents: [][]byte{[]byte("ab"), nil}}, "\x02\x00\x00\x00ab\x00\x00\x00\x00", ""},
		{infer.FP32, &kserve.InferTensorContents{}, "", ""},
		{infer.FP32, &kserve.InferTensorContents{IntContents: []int32{1}}, "",
			"unexpected explicit tensor data for input tensor 'IN' for model 'M' of type 'INT32', expected datatype 'FP32'"},
		{infer.Int64, &kserve.InferTensorContents{Int64Contents: []int64{1}, Fp32Contents: []float32{1}}, "",
			"unexpected explicit tensor data for input tensor 'IN' for model 'M', binary data was already supplied."},
	} {
		packed, err := proto.Marshal(test.in)
		if err != nil {
			t.Fatal(err)
		}
		for _, contents := range [][]byte{packed, unpack(t, packed)} {
			head, err := proto.Marshal(&kserve.ModelInferRequest_InferInputTensor{Name: "IN", Datatype: test.typ.String()})
			if err != nil {
				t.Fatal(err)
			}
			input := field(head, 5, contents)
			q, err := receive(field(nil, 5, input), budget.New(budget.Config{Limit: 1 << 30}))
			if err != nil {
				t.Fatal(err)
			}
			q.Infer.Model = "M"
			err = q.Build(nil, nil)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("%s: got error %v, want %s", test.typ, err, test.err)
				}
			} else if got := q.Infer.Inputs[0].Data; err != nil || string(got) != test.want {
				t.Errorf("%s: got %q and error %v, want %q", test.typ, got, err, test.want)
			}
			q.Release()
		}
	}
}

// unpack rewrites packed fields as one field per value.
func unpack(t *testing.T, b []byte) (out []byte) {
	t.Helper()
	for len(b) > 0 {
		num, _, n := protowire.ConsumeTag(b)
		packed, m := protowire.ConsumeBytes(b[n:])
		b = b[n+m:]
		if num == 8 {
			out = protowire.AppendBytes(protowire.AppendTag(out, num, protowire.BytesType), packed)
			continue
		}
		typ := protowire.VarintType
		if num == 6 {
			typ = protowire.Fixed32Type
		} else if num == 7 {
			typ = protowire.Fixed64Type
		}
		for len(packed) > 0 {
			k := protowire.ConsumeFieldValue(num, typ, packed)
			if k < 0 {
				t.Fatal(protowire.ParseError(k))
			}
			out = append(protowire.AppendTag(out, num, typ), packed[:k]...)
			packed = packed[k:]
		}
	}
	return out
}

// TestOneRefusesManyEntriesAndDepth checks the limits of map entries and of nested messages.
func TestOneRefusesManyEntriesAndDepth(t *testing.T) {
	one := func(b []byte, m proto.Message) error {
		charge, r := &budget.Charge{Account: budget.New(budget.Config{Limit: 1 << 30})}, receiver(of(b))
		defer charge.Settle()
		defer r.Close()
		return r.One(m, message.PlanOf(m), message.Bounds{Bytes: 1 << 20, Entries: 1000}, charge)
	}
	err := one(bytes.Repeat([]byte{0x1a, 0}, 1001), &kserve.RepositoryModelLoadRequest{})
	var refused *infer.Error
	if !errors.As(err, &refused) || refused.Code != infer.InvalidArg || refused.Message != "'parameters' has 1001 entries, but at most 1000 are allowed" {
		t.Errorf("many entries: got %v", err)
	}
	nested := func(depth int) (b []byte) { // lists in lists
		for range depth {
			b = field(nil, 6, field(nil, 1, b))
		}
		return b
	}
	if err := one(nested(40), &structpb.Value{}); err != nil {
		t.Errorf("a message that is not deep: got %v", err)
	}
	if err := one(nested(60), &structpb.Value{}); status.Code(err) != codes.Internal {
		t.Errorf("a deep message: got %v, want that it cannot be parsed", err)
	}
}
