package replay_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/replay"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server/recording"
)

func floats(name string, values ...float32) recording.Tensor {
	return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: infer.FP32, Shape: []int64{1, int64(len(values))}, Data: testkit.TensorData(values...)}}
}

func texts(name string, values ...string) recording.Tensor {
	return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: infer.Bytes, Shape: []int64{int64(len(values))}, Data: testkit.TensorData(values...)}}
}

func raw(name string, d infer.DataType, data ...byte) recording.Tensor {
	return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: d, Shape: []int64{int64(len(data) / d.Size())}, Data: data}}
}

func outputs(list ...recording.Tensor) recording.Message { return recording.Message{Tensors: list} }

func refusal(text string) recording.Message {
	return recording.Message{Err: infer.Errorf(infer.Internal, "%s", text)}
}

// TestDifferencesAreToldInSentences checks the sentences about differences between responses. want
// is joined by " | ".
func TestDifferencesAreToldInSentences(t *testing.T) {
	nan, other := math.Float32frombits(0x7fc00000), math.Float32frombits(0x7fc00001)
	parameters := func(list ...infer.Parameter) recording.Message { return recording.Message{Parameters: list} }
	number := func(name string, n int64) infer.Parameter {
		return infer.Parameter{Name: name, Kind: infer.IntParameter, Int: n}
	}
	cut := raw("A", infer.Int16, 1, 0, 2, 0)
	cut.Data = cut.Data[:3]
	hidden := floats("A", 1)
	hidden.Redacted, hidden.Data = true, nil
	tolerance := func(value string) []string { return []string{"--tolerance=" + value} }
	server := newAnswering(t)
	one := func(messages ...recording.Message) []recording.Message { return messages }
	for _, c := range []struct {
		name    string
		options []string
		was, is []recording.Message
		want    string
	}{
		{"the same", nil, one(outputs(floats("A", 1, 2), texts("B", "x"))), one(outputs(texts("B", "x"), floats("A", 1, 2))), ""},
		{"an element", nil, one(outputs(floats("A", 1, 2, 3))), one(outputs(floats("A", 1, 2.5, 4))), "output A: element [0,1] is 2.5, was 2; 2 of 3 elements differ"},
		{"within the tolerance", tolerance("1e-3"), one(outputs(floats("A", 1000, 0))), one(outputs(floats("A", 1000.9, .0009))), ""},
		{"beyond the tolerance", tolerance("1e-3"), one(outputs(floats("A", 1000, 0))), one(outputs(floats("A", 1001.5, .0011))), "output A: element [0,0] is 1001.5, was 1000; 2 of 2 elements differ"},
		{"what is no number", nil, one(outputs(floats("A", nan, 0))), one(outputs(floats("A", other, float32(math.Copysign(0, -1))))), ""},
		{"a number that is none any more", tolerance("1e9"), one(outputs(floats("A", 1))), one(outputs(floats("A", nan))), "output A: element [0,0] is NaN, was 1"},
		{"infinite", tolerance("1"), one(outputs(floats("A", float32(math.Inf(1))))), one(outputs(floats("A", float32(math.Inf(-1))))), "output A: element [0,0] is -Inf, was +Inf"},
		{"tolerance of integers", tolerance("1"), one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Int8, 255))), "output A: element [0] is -1, was 1"},
		{"texts", nil, one(outputs(texts("A", "", "b"))), one(outputs(texts("A", "", "\x00"))), `output A: element [1] is "\x00", was "b"; 1 of 2 elements differ`},
		{"texts of other lengths", nil, one(outputs(texts("A", "ab"))), one(outputs(texts("A", "a"))), `output A: element [0] is "a", was "ab"`},
		{"a half", tolerance("1e-2"), one(outputs(raw("A", infer.FP16, 0, 0x3c, 1, 0))), one(outputs(raw("A", infer.FP16, 4, 0x3c, 0, 0x80))), ""},
		{"a brain float", nil, one(outputs(raw("A", infer.BF16, 0x80, 0x3f))), one(outputs(raw("A", infer.BF16, 0, 0x40))), "output A: element [0] is 2, was 1"},
		{"a type", nil, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Uint8, 1))), "output A: the type is UINT8, was INT8"},
		{"a shape", nil, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Int8, 1, 2))), "output A: the shape is [2], was [1]"},
		{"an incomplete element", nil, one(outputs(raw("A", infer.Int16, 1, 0, 2, 0))), one(outputs(cut)), `output A: element [1] is "\x02", was 2; 1 of 2 elements differ`},
		{"names", nil, one(outputs(floats("A", 1))), one(outputs(floats("B", 1))), "output A is missing | output B is new"},
		{"ignored", []string{"--ignore-output=A", "--ignore-output=B"}, one(outputs(floats("A", 1))), one(outputs(floats("B", 1))), ""},
		{"redacted", nil, one(outputs(hidden)), one(outputs(floats("A", 5))), ""},
		{"redacted, of another shape", nil, one(outputs(hidden)), one(outputs(floats("A", 5, 6))), "output A: the shape is [1,2], was [1,1]"},
		{"errors", nil, one(refusal("x")), one(refusal("x")), ""},
		{"other errors", nil, one(refusal("x")), one(refusal("y")), `the error is "y", was "x"`},
		{"an error for a response", nil, one(outputs()), one(refusal("y")), `it is the error "y", was a response`},
		{"a response for an error", nil, one(refusal("x")), one(outputs()), `it is a response, was the error "x"`},
		{"a stream", nil, one(outputs(), refusal("x")), one(outputs(), refusal("y"), outputs()), `response 2: the error is "y", was "x" | 3 responses, was 2`},
		{"nothing", nil, one(refusal("x")), nil, `no response, was the error "x"`},
		{"parameters", nil, one(parameters(number("a", 1), number("b", 2))), one(parameters(number("b", 3), number("c", 4), number("sequence_id", 1))), "parameter a is missing, was 1 | parameter b is 3, was 2 | parameter c is new: 4"},
		{"a whole number", nil, one(parameters(infer.Parameter{Name: "a", Kind: infer.DoubleParameter, Double: 2})), one(parameters(number("a", 2))), ""},
		{"parameters that are ignored", []string{"--ignore-parameter=a"}, one(parameters(number("a", 1))), one(parameters(number("a", 2))), ""},
	} {
		if got := strings.Join(server.differences(t, &recording.Record{Answers: c.was}, c.is, c.options...), " | "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	redacted := recording.Message{Tensors: []recording.Tensor{{Tensor: infer.Tensor{Name: "IN", DataType: infer.Int8, Shape: []int64{1}}, Redacted: true}}}
	if got := server.differences(t, &recording.Record{Request: redacted, Answers: one(outputs(floats("A", 1)))}, one(outputs(floats("A", 5, 6)))); len(got) > 0 {
		t.Errorf("redacted inputs: got %q, want that outputs are compared by name alone", got)
	}
}

// TestDifferencesAreBounded checks that only the first of many or long differences are kept.
func TestDifferencesAreBounded(t *testing.T) {
	was, is := make([]recording.Message, 5000), make([]recording.Message, 5000)
	for i := range was {
		was[i], is[i] = refusal("x"), refusal("y")
	}
	server := newAnswering(t)
	many := server.differences(t, &recording.Record{Answers: was}, is)
	if n := len(many); n > 2000 || many[n-1] != fmt.Sprintf("and %d more differences", 5000-n+1) {
		t.Errorf("got %d differences, the last of them %q", n, many[n-1])
	}
	is[0].Err = &infer.Error{Message: strings.Repeat("y", 1<<20)}
	if long := server.differences(t, &recording.Record{Answers: was[:1]}, is[:1]); len(long) != 1 || len(long[0]) > infer.MaxEcho {
		t.Errorf("got %d differences, the first of %d bytes", len(long), len(long[0]))
	}
}

// TestValuesOfAllTypesAreShown checks the text of a value of each data type with all bits set, and
// the conversion of half-precision numbers.
func TestValuesOfAllTypesAreShown(t *testing.T) {
	all := []byte{255, 255, 255, 255, 255, 255, 255, 255}
	server := newAnswering(t)
	shown := func(was, is recording.Tensor) string {
		return strings.Join(server.differences(t, &recording.Record{Answers: []recording.Message{outputs(was)}}, []recording.Message{outputs(is)}), " | ")
	}
	for d, want := range map[infer.DataType]string{
		infer.Bool: "true, was false", infer.Uint8: "255, was 0", infer.Int8: "-1, was 0", infer.Uint16: "65535, was 0", infer.Int16: "-1, was 0",
		infer.Uint32: "4294967295, was 0", infer.Int32: "-1, was 0", infer.Uint64: "18446744073709551615, was 0", infer.Int64: "-1, was 0",
		infer.FP16: "NaN, was 0", infer.BF16: "NaN, was 0", infer.FP32: "NaN, was 0", infer.FP64: "NaN, was 0",
	} {
		if got := shown(raw("A", d, make([]byte, d.Size())...), raw("A", d, all[:d.Size()]...)); got != "output A: element [0] is "+want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	for bits, want := range map[uint16]float64{0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 1: math.Ldexp(1, -24), 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := float64(infer.FromFP16(bits)); got != want {
			t.Errorf("half %#x: got %v, want %v", bits, got, want)
		}
	}
	if got := shown(texts("A", ""), texts("A", strings.Repeat("x", 100))); got != `output A: element [0] is "`+strings.Repeat("x", 60)+`"… (100 bytes), was ""` {
		t.Errorf("got %s", got)
	}
}

// answering is a server that sends given answers to each request on a stream.
type answering struct {
	grpcservice.UnimplementedGRPCInferenceServiceServer
	address string
	answers []recording.Message // set before each replay
}

func newAnswering(t *testing.T) *answering {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &answering{address: listener.Addr().String()}
	calls := grpc.NewServer()
	grpcservice.RegisterGRPCInferenceServiceServer(calls, s)
	testkit.Serve(t, listener, calls)
	return s
}

func (s *answering) ModelStreamInfer(stream grpc.BidiStreamingServer[kserve.ModelInferRequest, kserve.ModelStreamInferResponse]) error {
	for i := range s.answers {
		m := &s.answers[i]
		reply := &kserve.ModelStreamInferResponse{InferResponse: &kserve.ModelInferResponse{Parameters: client.Parameters(m.Parameters)}}
		if m.Err != nil {
			reply.ErrorMessage = m.Err.Message
		}
		for _, t := range m.Tensors {
			reply.InferResponse.Outputs = append(reply.InferResponse.Outputs, &kserve.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.DataType.String(), Shape: t.Shape})
			reply.InferResponse.RawOutputContents = append(reply.InferResponse.RawOutputContents, t.Data)
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

// differences replays a record, and returns the differences between its answers and is.
func (s *answering) differences(t *testing.T, r *recording.Record, is []recording.Message, options ...string) []string {
	t.Helper()
	directory := t.TempDir()
	r.Model, r.Version, r.Decoupled, r.Received = "m", 1, true, time.Now()
	record(t, directory, 1, r)
	s.answers = is
	var out, errs strings.Builder
	replay.Run(append(options, directory, "--json", "--grpc-url", s.address), &out, &errs)
	var told report
	if err := json.Unmarshal([]byte(out.String()), &told); err != nil || len(told.Requests) != 1 || told.NotSent > 0 {
		t.Fatalf("got %s%s, %v", &out, &errs, err)
	}
	return told.Requests[0].Differences
}
