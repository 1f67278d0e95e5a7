package grpc_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestBadRequestsReadAsClientsExpect checks that the errors of invalid requests have Triton's
// texts.
func TestBadRequestsReadAsClientsExpect(t *testing.T) {
	s := start(t, grpcserver.Config{}, servertest.NewCore(servertest.NewModel("ident", 0)))
	for _, test := range []struct {
		request string
		code    codes.Code
		text    string
	}{
		{`model_name:"ident" model_version:"x" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "failed to get model version from specified version string 'x' (details: stol), version should be an integral value > 0"},
		{`model_name:"ident" model_version:"-1" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid model version specified '-1' , version should be an integral value > 0"},
		{`model_name:"ident" model_version:"99999999999999999999" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "failed to get model version from specified version string '99999999999999999999' (details: stol), version should be an integral value > 0"},
		{`model_name:"none" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.NotFound, "Request for unknown model: 'none' is not found"},
		{`inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.NotFound, "Request for unknown model: '' is not found"},
		{`model_name:"ident" parameters{key:"sequence_id" value{bool_param:true}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
		{`model_name:"ident" parameters{key:"sequence_id" value{string_param:"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.Unimplemented, "string correlation ID cannot be longer than 128 characters"},
		{`model_name:"ident" parameters{key:"sequence_start" value{int64_param:1}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'sequence_start' parameter, expected bool_param."},
		{`model_name:"ident" parameters{key:"sequence_end" value{string_param:"x"}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'sequence_end' parameter, expected bool_param."},
		{`model_name:"ident" parameters{key:"priority" value{int64_param:-1}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value for 'priority', expected value >= 0."},
		{`model_name:"ident" parameters{key:"priority" value{bool_param:true}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
		{`model_name:"ident" parameters{key:"timeout" value{uint64_param:1}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'timeout' parameter, expected int64_param."},
		{`model_name:"ident" parameters{key:"triton_x" value{bool_param:true}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response"},
		{`model_name:"ident" parameters{key:"triton_enable_empty_final_response" value{int64_param:1}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."},
		{`model_name:"ident" parameters{key:"a" value{uint64_param:1}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'a' parameter, expected int64_param, bool_param, or string_param."},
		{`model_name:"ident" parameters{key:"a" value{}} inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "invalid value type for 'a' parameter, expected int64_param, bool_param, or string_param."},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 contents{uint_contents:[1,2,3,4,5,6,7,8]}}raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "contents field must not be specified when using raw_input_contents for 'IN1' for model 'ident'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:0 }`,
			codes.InvalidArgument, "unable to find data for input tensor 'IN1' for model 'ident' in request."},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:1 contents{int_contents:1}}`,
			codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'IN1' for model 'ident' of type 'INT32', expected datatype 'UINT8'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:1 contents{uint_contents:1 fp32_contents:1}}`,
			codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'IN1' for model 'ident', binary data was already supplied."},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:1 contents{int_contents:1 fp32_contents:1}}`,
			codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'IN1' for model 'ident' of type 'INT32', expected datatype 'UINT8'"},
		{`model_name:"ident" inputs{name:"IN4" datatype:"FP16" shape:1 contents{fp32_contents:1}}`,
			codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'IN4' for model 'ident' of type 'FP32', expected datatype 'FP16'"},
		{`model_name:"ident" inputs{name:"IN4" datatype:"FPX" shape:1 contents{fp32_contents:1}}`,
			codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'IN4' for model 'ident' of type 'FP32', expected datatype '<invalid>'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }inputs{name:"IN3" datatype:"INT64" shape:1 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "unable to find data for input tensor 'IN3' for model 'ident' in request."},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08" raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "[request id: <id_unknown>] input 'IN1' already exists in request"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08" outputs{name:"OUT1"} outputs{name:"OUT1"}`,
			codes.InvalidArgument, "[request id: <id_unknown>] output 'OUT1' already exists in request"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_region" value{int64_param:1}} }`,
			codes.InvalidArgument, "invalid value type for 'shared_memory_region' parameter for tensor 'IN1', expected string_param."},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_region" value{string_param:"r"}} parameters{key:"shared_memory_byte_size" value{int64_param:8}} }`,
			codes.NotFound, "Unable to find shared memory region: 'r'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_region" value{string_param:"r"}} }`,
			codes.InvalidArgument, "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'IN1'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_offset" value{int64_param:1}} }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'IN1'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_byte_size" value{int64_param:1}} }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08"`,
			codes.InvalidArgument, "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor 'IN1'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_region" value{string_param:"r"}} parameters{key:"shared_memory_offset" value{bool_param:true}} parameters{key:"shared_memory_byte_size" value{int64_param:8}} }`,
			codes.InvalidArgument, "invalid value type for 'shared_memory_offset' parameter for tensor 'IN1', expected int64_param."},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 parameters{key:"shared_memory_region" value{string_param:"r"}} parameters{key:"shared_memory_byte_size" value{int64_param:8}} contents{uint_contents:1}}`,
			codes.InvalidArgument, "unexpected 'content' provided when using shared memory for input tensor 'IN1' for model 'ident'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08" outputs{name:"OUT1" parameters{key:"shared_memory_region" value{string_param:"r"}} parameters{key:"shared_memory_byte_size" value{int64_param:8}} }`,
			codes.NotFound, "Unable to find shared memory region: 'r'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08" outputs{name:"OUT1" parameters{key:"shared_memory_region" value{string_param:"r"}} parameters{key:"shared_memory_byte_size" value{int64_param:8}} parameters{key:"classification" value{int64_param:1}} }`,
			codes.InvalidArgument, "output can't set both 'shared_memory_region' and 'classification'"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08" outputs{name:"OUT1" parameters{key:"classification" value{string_param:"1"}} }`,
			codes.InvalidArgument, "invalid value type for 'classification' parameter, expected int64_param"},
		{`model_name:"ident" inputs{name:"IN1" datatype:"UINT8" shape:8 }raw_input_contents:"\x01\x02\x03\x04\x05\x06\x07\x08" outputs{name:"OUT1" parameters{key:"classification" value{int64_param:0}} }`,
			codes.InvalidArgument, "invalid value for 'classification' parameter, expected >= 0"},
	} {
		q := &kserve.ModelInferRequest{}
		if err := prototext.Unmarshal([]byte(test.request), q); err != nil {
			t.Fatalf("%s: %v", test.request, err)
		}
		_, err := s.client.ModelInfer(rpcContext(t), q)
		wantStatus(t, err, test.code, test.text)
		stream := s.open(t, rpcContext(t))
		sendAll(t, stream, q)
		if got, end := receiveAll(t, stream); !slices.Equal(got, []string{"/  -: " + test.text}) || end != io.EOF {
			t.Errorf("stream: got %q and %v, want %q", got, end, test.text)
		}
	}
	if n := s.core.Served.Load(); n != 0 {
		t.Errorf("%d of the requests have reached the core", n)
	}
}

// TestLongErrorsAreCut checks that a client with the usual header limit of 8 KiB receives the code
// and the beginning of an error text of any length.
func TestLongErrorsAreCut(t *testing.T) {
	const before, after = "the model says '", "'"
	whole := ""
	fails := servertest.NewModel("says", 0, "INPUT0 INT32 -1")
	fails.Infer = func(context.Context, *infer.Request, infer.Sender) error {
		return &infer.Error{Code: infer.NotFound, Message: whole}
	}
	s := start(t, grpcserver.Config{}, servertest.NewCore(fails), grpc.WithMaxHeaderListSize(8<<10))
	for _, test := range []struct {
		what, piece string
		n, keep     int // how often the text and the client's copy contain the piece; keep == n: all of it
	}{
		{"4 KiB", "x", grpcserver.MaxText - len(before+after), grpcserver.MaxText - len(before+after)},
		{"a byte more", "x", grpcserver.MaxText - len(before+after) + 1, grpcserver.MaxText - grpcserver.MaxCutMark - len(before)},
		{"100 KB", "x", 100_000, grpcserver.MaxText - grpcserver.MaxCutMark - len(before)},
		{"7 KiB encoded", "ü", 1185, 1185},
		{"more encoded", "ü", 1195, (grpcserver.MaxEncodedText - grpcserver.MaxCutMark - len(before)) / 6},
		{"four bytes", "😀", 30_000, (grpcserver.MaxEncodedText - grpcserver.MaxCutMark - len(before)) / 12},
		{"controls", "\n", 30_000, (grpcserver.MaxEncodedText - grpcserver.MaxCutMark - len(before)) / 3},
		{"percent", "%", 30_000, (grpcserver.MaxEncodedText - grpcserver.MaxCutMark - len(before)) / 3},
	} {
		t.Run(test.what, func(t *testing.T) {
			q := int32s("says", 1)
			whole = before + strings.Repeat(test.piece, test.n) + after
			want := whole
			if test.keep < test.n {
				want = before + strings.Repeat(test.piece, test.keep) + "… (" + strconv.Itoa(len(whole)) + " bytes)"
			}
			_, err := s.client.ModelInfer(rpcContext(t), q)
			wantStatus(t, err, codes.NotFound, want)
			stream := s.open(t, rpcContext(t))
			sendAll(t, stream, q)
			if got, end := receiveAll(t, stream); !slices.Equal(got, []string{"/  -: " + whole}) || end != io.EOF {
				t.Errorf("stream: got %d messages and %v, want one with the whole text", len(got), end)
			}
		})
	}
}

// TestErrorsRepeatLittle checks that an error repeats at most 4 KiB of a request, as JSON, even if
// it repeats several texts of it.
func TestErrorsRepeatLittle(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	for _, text := range []string{"x", "\x01", `"`} {
		q := withID(int32s("id_int32", 1), strings.Repeat(text, 32<<10))
		q.Inputs[0].Name = strings.Repeat(text, 4<<10)
		q.Inputs = append(q.Inputs, q.Inputs[0])
		const most = infer.MaxEcho + len("input '' already exists in request")
		_, err := s.client.ModelInfer(rpcContext(t), q)
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || len(got.Message()) > most {
			t.Errorf("%q: got %s with %d bytes, want at most %d", text, got.Code(), len(got.Message()), most)
		}
		stream := s.open(t, rpcContext(t))
		sendAll(t, stream, q)
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		quoted, err := json.Marshal(got.ErrorMessage)
		if err != nil || len(quoted) > most+len(`""`) || !strings.HasSuffix(got.ErrorMessage, "already exists in request") {
			t.Errorf("%q: got %d bytes, as JSON %d, and %v in the stream, want at most %d", text, len(got.ErrorMessage), len(quoted), err, most)
		}
		_, _ = receiveAll(t, stream)
	}
}

// FuzzShortText checks that a shortened text is within the limits and is a prefix of the original.
func FuzzShortText(f *testing.F) {
	for _, seed := range []string{"", "short", "ü%\n", "\xff\xfe", "a\xe2\x82", "😀x"} {
		f.Add(seed, 1)
		f.Add(seed, 3000)
	}
	f.Fuzz(func(t *testing.T, piece string, n int) {
		if n < 0 || n > 5000 || len(piece) > 100 {
			return
		}
		text := strings.Repeat(piece, n)
		got := grpcserver.ShortText(text)
		encoded := 0
		for _, b := range []byte(string([]rune(got))) { // U+FFFD for invalid UTF-8
			if encoded++; b < ' ' || b > '~' || b == '%' {
				encoded += 2
			}
		}
		if len(got) > grpcserver.MaxText || encoded > grpcserver.MaxEncodedText {
			t.Fatalf("%d bytes, %d encoded, are left of %d", len(got), encoded, len(text))
		}
		kept, cut := strings.CutSuffix(got, "… ("+strconv.Itoa(len(text))+" bytes)")
		if !strings.HasPrefix(text, kept) || !cut && got != text || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Fatalf("got %q of %q", got, text)
		}
	})
}

// TestUnusedRawContentsAreIgnored checks that surplus entries of raw_input_contents are ignored.
func TestUnusedRawContentsAreIgnored(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	q := int32s("id_int32", 5000)
	q.RawInputContents = append(q.RawInputContents, make([]byte, 100000), nil)
	got, err := s.client.ModelInfer(rpcContext(t), q)
	if err != nil || len(got.RawOutputContents) != 1 || !slices.Equal(got.RawOutputContents[0], q.RawInputContents[0]) {
		t.Errorf("got error %v", err)
	}
}
