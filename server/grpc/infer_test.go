package grpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestInferCarriesEveryType checks that tensors of each data type pass through a model unchanged:
// small and large, raw and, if InferTensorContents has a field for the type, typed.
func TestInferCarriesEveryType(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	for d := infer.Bool; d <= infer.BF16; d++ {
		for _, n := range []int{0, 1, 3, 1000, 5000, 100000} {
			var data []byte
			contents := &kserve.InferTensorContents{}
			for i := range n {
				v := uint64(i*i) ^ uint64(i%7)<<60
				switch d {
				case infer.Bool:
					v &= 1
					contents.BoolContents = append(contents.BoolContents, v == 1)
				case infer.Int8, infer.Int16, infer.Int32:
					contents.IntContents = append(contents.IntContents, int32(v))
				case infer.Uint8, infer.Uint16, infer.Uint32:
					contents.UintContents = append(contents.UintContents, uint32(v))
				case infer.Int64:
					contents.Int64Contents = append(contents.Int64Contents, int64(v))
				case infer.Uint64:
					contents.Uint64Contents = append(contents.Uint64Contents, v)
				case infer.Bytes:
					text := strings.Repeat("é", i%5)
					contents.BytesContents = append(contents.BytesContents, []byte(text))
					data = append(binary.LittleEndian.AppendUint32(data, uint32(len(text))), text...)
				}
				if d != infer.Bytes {
					data = append(data, binary.LittleEndian.AppendUint64(nil, v)[:d.Size()]...)
				}
			}
			q := rawRequest("id_"+strings.ToLower(d.String()), d.String(), []int64{int64(n)}, data)
			want := &kserve.ModelInferResponse{ModelName: q.ModelName, ModelVersion: "1",
				Outputs:           []*kserve.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: d.String(), Shape: []int64{int64(n)}}},
				RawOutputContents: [][]byte{data}}
			if data == nil {
				want.RawOutputContents = [][]byte{{}}
			}
			got, err := s.client.ModelInfer(rpcContext(t), q)
			if err != nil || !proto.Equal(got, want) {
				t.Errorf("%d raw %s: got %.200v and error %v, want %.200v", n, d, got, err, want)
			}
			if d == infer.FP16 || d == infer.BF16 {
				continue
			}
			for i := range n {
				bits := binary.LittleEndian.Uint64(append(data[min(len(data), i*d.Size()):][:d.Size():d.Size()], make([]byte, 8)...))
				switch d {
				case infer.FP32:
					contents.Fp32Contents = append(contents.Fp32Contents, math.Float32frombits(uint32(bits)))
				case infer.FP64:
					contents.Fp64Contents = append(contents.Fp64Contents, math.Float64frombits(bits))
				}
			}
			q.RawInputContents, q.Inputs[0].Contents = nil, contents
			got, err = s.client.ModelInfer(rpcContext(t), q)
			if err != nil || !proto.Equal(got, want) {
				t.Errorf("%d typed %s: got %.200v and error %v, want %.200v", n, d, got, err, want)
			}
		}
	}
}

// TestInferAsksTheCore checks the infer.Request that the Core receives.
func TestInferAsksTheCore(t *testing.T) {
	core := servertest.NewCore()
	s := start(t, grpcserver.Config{ForwardPattern: "^X-|^y$"}, core)
	q := &kserve.ModelInferRequest{ModelName: "multi", ModelVersion: "1", Id: "the id",
		Parameters: paramsOf("sequence_id", 7, "sequence_start", true, "sequence_end", false, "priority", uint64(9), "timeout", -1,
			"triton_enable_empty_final_response", true, "a", "b", "binary_data_output", true),
		Inputs: []*kserve.ModelInferRequest_InferInputTensor{
			{Name: "INPUT1", Datatype: "FP32", Shape: []int64{1}, Contents: &kserve.InferTensorContents{Fp32Contents: []float32{1}}},
		},
		Outputs: []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT1", Parameters: paramsOf("binary_data", false)}, {Name: "OUTPUT0"}},
	}
	if _, err := s.client.ModelInfer(rpcContext(t, "x-one", "1", "X-One", "2", "y", "3", "yy", "4", "ax-", "5"), q); err != nil {
		t.Fatal(err)
	}
	r := core.Last()
	if r.Model != "multi" || r.Version != 1 || r.ID != "the id" || r.Correlation != (infer.CorrelationID{Number: 7}) ||
		r.Flags != infer.SequenceStart || r.Priority != 9 || r.TimeoutMicros != 1<<64-1 || r.Raw || !slices.Equal(r.Outputs, []string{"OUTPUT1", "OUTPUT0"}) {
		t.Errorf("the core got %+v", r)
	}
	text := func(name, s string) infer.Parameter {
		return infer.Parameter{Name: name, Kind: infer.StringParameter, String: s}
	}
	slices.SortFunc(r.Parameters[:2], func(a, b infer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	if want := []infer.Parameter{text("a", "b"), {Name: "binary_data_output", Kind: infer.BoolParameter, Bool: true},
		text("x-one", "1"), text("x-one", "2"), text("y", "3")}; !slices.Equal(r.Parameters, want) {
		t.Errorf("the core got parameters %+v, want %+v", r.Parameters, want)
	}

	// All optional fields are missing.
	q = &kserve.ModelInferRequest{ModelName: "multi", Parameters: paramsOf("sequence_id", strings.Repeat("é", 64), "priority", 3,
		"i", -5, "d", 0.5, "t", "", "f", false)}
	if _, err := s.client.ModelInfer(rpcContext(t), q); err != nil {
		t.Fatal(err)
	}
	r = core.Last()
	slices.SortFunc(r.Parameters, func(a, b infer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	if want := []infer.Parameter{{Name: "d", Kind: infer.DoubleParameter, Double: 0.5}, {Name: "f", Kind: infer.BoolParameter},
		{Name: "i", Kind: infer.IntParameter, Int: -5}, text("t", "")}; r.Version != infer.LatestVersion || r.Correlation.Text != strings.Repeat("é", 64) ||
		r.Priority != 3 || r.Flags != 0 || len(r.Inputs)+len(r.Outputs) != 0 || !slices.Equal(r.Parameters, want) {
		t.Errorf("the core got %+v", r)
	}
}

// TestInferRepliesWithTheResponse checks the replies to various responses.
func TestInferRepliesWithTheResponse(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 1000)
	odd := servertest.NewModel("odd", 0, "OUTPUT0 INT32 -1")
	core := servertest.NewCore(odd)
	s := start(t, grpcserver.Config{}, core)
	odd.Infer = func(_ context.Context, req *infer.Request, send infer.Sender) error {
		data, memory, _ := s.blocks.Allocate(len(big))
		copy(data, big)
		send(&infer.Response{Model: "odd", Version: 3, ID: req.ID, Final: true,
			Parameters: []infer.Parameter{{Name: "a", Kind: infer.StringParameter, String: "x"}, {Name: "b", Kind: infer.IntParameter, Int: -1},
				{Name: "c", Kind: infer.BoolParameter, Bool: true}, {Name: "d", Kind: infer.DoubleParameter, Double: 2.5}},
			Outputs: []infer.Tensor{
				{Name: "scalar", DataType: infer.Int16, Data: []byte{1, 2}},
				{Name: "empty", DataType: infer.Bytes, Shape: []int64{0, 3}},
				{Name: "big", DataType: infer.Uint8, Shape: []int64{int64(len(data))}, Data: data, Memory: memory},
				{Name: "heap", DataType: infer.BF16, Shape: []int64{5000}, Data: big},
				{Name: "last", DataType: infer.FP32, Shape: []int64{1, 1}, Data: []byte{0, 0, 128, 63}},
			}})
		return nil
	}
	want := &kserve.ModelInferResponse{}
	if err := prototext.Unmarshal([]byte(`model_name: "odd" model_version: "3" id: "i"
		parameters {key: "a" value {string_param: "x"}} parameters {key: "b" value {int64_param: -1}}
		parameters {key: "c" value {bool_param: true}} parameters {key: "d" value {double_param: 2.5}}
		outputs {name: "scalar" datatype: "INT16"} outputs {name: "empty" datatype: "BYTES" shape: [0, 3]} outputs {name: "big" datatype: "UINT8" shape: 10000}
		outputs {name: "heap" datatype: "BF16" shape: 5000} outputs {name: "last" datatype: "FP32" shape: [1, 1]}`), want); err != nil {
		t.Fatal(err)
	}
	want.RawOutputContents = [][]byte{{1, 2}, {}, big, big, {0, 0, 128, 63}}
	got, err := s.client.ModelInfer(rpcContext(t), &kserve.ModelInferRequest{ModelName: "odd", Id: "i"})
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %.1000v and error %v, want %.1000v", got, err, want)
	}
}

// TestInferOutcomesBecomeStatuses checks the status of an RPC for each way in which a Core can end
// it.
func TestInferOutcomesBecomeStatuses(t *testing.T) {
	for _, test := range []struct {
		name  string
		infer func(send infer.Sender) error
		code  codes.Code
		text  string
	}{
		{"none", func(infer.Sender) error { return nil }, codes.Internal, "expected a single response, got 0"},
		{"empty final", func(send infer.Sender) error { send(&infer.Response{Empty: true, Final: true}); return nil }, codes.Internal, "expected a single response, got 0"},
		{"two", func(send infer.Sender) error {
			send(&infer.Response{})
			send(&infer.Response{Final: true})
			return nil
		}, codes.Internal, "expected a single response, got 2"},
		{"one and the end", func(send infer.Sender) error {
			send(&infer.Response{})
			send(&infer.Response{Empty: true, Final: true})
			return nil
		}, codes.OK, ""},
		{"panic", func(infer.Sender) error { panic("the test's own") }, codes.Internal, "internal error while serving the request"},
		{"foreign error", func(infer.Sender) error { return context.DeadlineExceeded }, codes.DeadlineExceeded, "context deadline exceeded"},
		{"odd code", func(infer.Sender) error { return &infer.Error{Code: 77, Message: "odd"} }, codes.Unknown, "odd"},
		{"unknown", func(infer.Sender) error { return infer.Errorf(infer.Unknown, "a") }, codes.Unknown, "a"},
		{"internal", func(infer.Sender) error { return infer.Errorf(infer.Internal, "b") }, codes.Internal, "b"},
		{"not found", func(infer.Sender) error { return infer.Errorf(infer.NotFound, "c") }, codes.NotFound, "c"},
		{"invalid", func(infer.Sender) error { return infer.Errorf(infer.InvalidArg, "d") }, codes.InvalidArgument, "d"},
		{"no room", func(infer.Sender) error {
			return &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: "full"}
		}, codes.ResourceExhausted, "full"},
		{"unavailable", func(infer.Sender) error { return infer.Errorf(infer.Unavailable, "e") }, codes.Unavailable, "e"},
		{"unsupported", func(infer.Sender) error { return infer.Errorf(infer.Unsupported, "f") }, codes.Unimplemented, "f"},
		{"exists", func(infer.Sender) error { return infer.Errorf(infer.AlreadyExists, "g") }, codes.AlreadyExists, "g"},
		{"cancelled", func(infer.Sender) error { return infer.Errorf(infer.Cancelled, "") }, codes.Canceled, ""},
		{"response", func(send infer.Sender) error {
			send(infer.ErrorResponse(&infer.Error{Code: infer.Unavailable, Message: "ü\n/x%"}))
			return nil
		}, codes.Unavailable, "ü\n/x%"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := servertest.NewModel("m", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
			m.Infer = func(_ context.Context, _ *infer.Request, send infer.Sender) error { return test.infer(send) }
			s := start(t, grpcserver.Config{}, servertest.NewCore(m))
			_, err := s.client.ModelInfer(rpcContext(t), int32s("m", 5000))
			wantStatus(t, err, test.code, test.text)
		})
	}
}

func TestClassificationReplacesTheOutput(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	q := rawRequest("classes", "FP32", []int64{2, 4}, []byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 0, 63, 0, 0, 64, 64, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0})
	q.Outputs = []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: paramsOf("classification", 2)}}
	got, err := s.client.ModelInfer(rpcContext(t), q)
	if err != nil {
		t.Fatal(err)
	}
	want := testkit.TensorData("3.000000:3:horse", "2.000000:1:dog", "2.000000:0:cat", "2.000000:2")
	if o := got.Outputs[0]; o.Datatype != "BYTES" || !slices.Equal(o.Shape, []int64{2, 2}) || !bytes.Equal(got.RawOutputContents[0], want) {
		t.Errorf("got %v, want %q", got, want)
	}

	q = rawRequest("id_bytes", "BYTES", []int64{1}, []byte{0, 0, 0, 0})
	q.Outputs = []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: paramsOf("classification", 2)}}
	_, err = s.client.ModelInfer(rpcContext(t), q)
	wantStatus(t, err, codes.InvalidArgument, "class result not available for output due to unsupported type 'BYTES'")
}

// TestSharedResponseReleasesEachReferenceOnce sends one block as two outputs and lets the reply
// fail late. Each reference must be released once.
func TestSharedResponseReleasesEachReferenceOnce(t *testing.T) {
	m := servertest.NewModel("twice", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	m.Infer = func(_ context.Context, req *infer.Request, send infer.Sender) error {
		r := &infer.Response{Model: "twice", Version: 1, Final: true}
		for _, name := range []string{"A", "B"} {
			out := req.Inputs[0]
			out.Name = name
			out.Retain()
			r.Outputs = append(r.Outputs, out)
		}
		send(r)
		return nil
	}
	s := start(t, grpcserver.Config{}, servertest.NewCore(m))
	q := int32s("twice", 10000)
	for _, classes := range []map[string]*kserve.InferParameter{nil, paramsOf("classification", 1)} {
		q.Outputs = []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "B", Parameters: classes}}
		got, err := s.client.ModelInfer(rpcContext(t), q)
		if err != nil || !bytes.Equal(got.RawOutputContents[0], q.RawInputContents[0]) {
			t.Fatalf("got error %v", err)
		}
		s.settled(t)
	}
	q.Inputs[0].Datatype = "BF16"
	_, err := s.client.ModelInfer(rpcContext(t), q)
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want a refusal", err)
	}
	s.settled(t)
}

// TestReplacedBeforeItRuns checks that a request whose version is replaced before it runs is
// executed by the successor, for a unary RPC and a stream.
func TestReplacedBeforeItRuns(t *testing.T) {
	const want = "\x0e\x00\x00\x002.000000:1:new"
	classified := func() *kserve.ModelInferRequest {
		q := rawRequest("replaced", "FP32", []int64{1, 2}, []byte("\x00\x00\x80\x3f\x00\x00\x00\x40"))
		q.Outputs = []*kserve.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT0", Parameters: map[string]*kserve.InferParameter{
			"classification": {ParameterChoice: &kserve.InferParameter_Int64Param{Int64Param: 1}}}}}
		return q
	}
	s := start(t, grpcserver.Config{}, servertest.NewCore(servertest.ReplacedModel()))
	got, err := s.client.ModelInfer(rpcContext(t), classified())
	if err != nil || len(got.RawOutputContents) != 1 || string(got.RawOutputContents[0]) != want {
		t.Errorf("ModelInfer: got %v and error %v, want %q", got, err, want)
	}
	s = start(t, grpcserver.Config{}, servertest.NewCore(servertest.ReplacedModel()))
	stream := s.open(t, rpcContext(t))
	sendAll(t, stream, classified())
	answer, err := stream.Recv()
	if err != nil || len(answer.InferResponse.GetRawOutputContents()) != 1 || string(answer.InferResponse.RawOutputContents[0]) != want {
		t.Errorf("ModelStreamInfer: got %v and error %v, want %q", answer, err, want)
	}
	if _, end := receiveAll(t, stream); end != io.EOF {
		t.Errorf("got %v at the end, want EOF", end)
	}
}
