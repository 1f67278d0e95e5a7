package rest_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/servertest"
)

// answerTo returns the body of an echo model's reply with one tensor.
func answerTo(model, datatype, shape, rest string) string {
	return fmt.Sprintf(`{"model_name":"%s","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"%s","shape":%s,%s}]}`, model, datatype, shape, rest)
}

func oneInput(datatype, shape, rest string) string {
	return fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"%s","shape":%s,%s}]}`, datatype, shape, rest)
}

const (
	binaryOutput = `"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]`
	inputBytes   = "\x01\x00\x00\x00\x02\x00\x00\x00"
)

func TestInferJSON(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	for _, tt := range []struct{ datatype, shape, data, shapeBack, back string }{
		{"BOOL", "[3]", "[true,false,true]", "[3]", "[true,false,true]"},
		{"UINT8", "[2]", "[255,256]", "[2]", "[255,0]"},
		{"UINT16", "[2]", "[65535, 65537]", "[2]", "[65535,1]"},
		{"UINT32", "[2]", "[4294967295,4294967296]", "[2]", "[4294967295,0]"},
		{"UINT64", "[2]", "[18446744073709551615,0]", "[2]", "[18446744073709551615,0]"},
		{"INT8", "[3]", "[-128,127,128]", "[3]", "[-128,127,-128]"},
		{"INT16", "[2]", "[-32768,32768]", "[2]", "[-32768,-32768]"},
		{"INT32", "[2,2]", "[[1,-2],[3,4]]", "[2,2]", "[1,-2,3,4]"},
		{"INT64", "[2]", "[-9223372036854775808,9223372036854775807]", "[2]", "[-9223372036854775808,9223372036854775807]"},
		{"FP32", "[5]", "[0.1,1,-0.0,1e39,NaN]", "[5]", "[0.10000000149011612,1.0,-0.0,Infinity,NaN]"},
		{"FP64", "[6]", "[0.1,1e22,1.5e-7,-Infinity,Inf,123456790519087104]", "[6]", "[0.1,1e22,1.5e-7,-Infinity,Infinity,123456790519087100.0]"},
		{"BYTES", "[3]", `["a\u00e9\n","","\"\\\/"]`, "[3]", "[\"a\u00e9\\n\",\"\",\"\\\"\\\\/\"]"},
		{"INT32", "[0]", "5", "[0]", "[]"},
		{"INT32", "[]", "[1]", "[]", "[]"},
		{"INT32", "[3,0]", "[]", "[3,0]", "[]"},
		{"INT32", "[4]", "[[[1]],[[2,3]],4]", "[4]", "[1,2,3,4]"},
	} {
		model := "id_" + strings.ToLower(tt.datatype)
		got := s.Infer(t, model, oneInput(tt.datatype, tt.shape, `"data":`+tt.data), "").String()
		if want := "200 application/json " + answerTo(model, tt.datatype, tt.shapeBack, `"data":`+tt.back); got != want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.datatype, tt.data, got, want)
		}
	}
}

func TestBinaryTensorsComeBackWhole(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	large := strings.Repeat("0123456789abcdef", 5000) // not on the Go heap
	bytesTensor := "\x02\x00\x00\x00\xff\xfe\x00\x00\x00\x00"
	for _, tt := range []struct{ name, model, datatype, shape, data string }{
		{"small", "id_int32", "INT32", "[2]", inputBytes},
		{"large", "id_uint8", "UINT8", "[80000]", large},
		{"FP16", "id_fp16", "FP16", "[4]", inputBytes},
		{"BF16", "id_bf16", "BF16", "[4]", inputBytes},
		{"BYTES that are no UTF-8", "id_bytes", "BYTES", "[2]", bytesTensor},
	} {
		t.Run(tt.name, func(t *testing.T) {
			head := fmt.Sprintf(`{"id":"i","inputs":[{"name":"INPUT0","datatype":"%s","shape":%s,"parameters":{"binary_data_size":%d}}],`+
				`"parameters":{"binary_data_output":true}}`, tt.datatype, tt.shape, len(tt.data))
			got := s.Infer(t, tt.model, head, tt.data)
			want := `{"id":"i",` + answerTo(tt.model, tt.datatype, tt.shape, fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, len(tt.data)))[1:]
			if got.Status != 200 || got.Header.Get("Content-Type") != "application/octet-stream" {
				t.Fatalf("got %.200s", got)
			}
			if n := got.Header.Get(inference.HeaderLengthName); n != strconv.Itoa(len(want)) {
				t.Errorf("%s: got %s, want %d", inference.HeaderLengthName, n, len(want))
			}
			if got.Body != want+tt.data {
				t.Errorf("got  %.300q\nwant %.300q", got.Body, want+tt.data)
			}
		})
	}
}

// TestJSONAndBinaryMixInOneRequest checks requests with alternating JSON and binary inputs and
// outputs, including an empty binary output.
func TestJSONAndBinaryMixInOneRequest(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	head := `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}},` +
		`{"name":"INPUT1","datatype":"FP32","shape":[1],"data":[2.5]},` +
		`{"name":"INPUT2","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}},` +
		`{"name":"INPUT3","datatype":"BOOL","shape":[0],"data":[]}],` +
		`"outputs":[{"name":"OUTPUT3","parameters":{"binary_data":true}},{"name":"OUTPUT2"},` +
		`{"name":"OUTPUT1","parameters":{"binary_data":true}},{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`
	got := s.Infer(t, "multi", head, inputBytes+"\x02\x00\x00\x00hi")
	want := `{"model_name":"multi","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}},` +
		`{"name":"OUTPUT1","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}},` +
		`{"name":"OUTPUT2","datatype":"BYTES","shape":[1],"data":["hi"]},` +
		`{"name":"OUTPUT3","datatype":"BOOL","shape":[0],"parameters":{"binary_data_size":0}}]}` + inputBytes + "\x00\x00\x20\x40"
	if got.Body != want {
		t.Errorf("got  %q\nwant %q", got.Body, want)
	}

	// The only binary output is empty: the reply is JSON.
	got = s.Infer(t, "id_int32", strings.Replace(oneInput("INT32", "[0]", `"data":[]`), "}]}", "}],"+binaryOutput+"}", 1), "")
	if want := "200 application/json " + answerTo("id_int32", "INT32", "[0]", `"parameters":{"binary_data_size":0}`); got.String() != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got.Header.Get(inference.HeaderLengthName) != "" {
		t.Errorf("%s: got %s, want none", inference.HeaderLengthName, got.Header.Get(inference.HeaderLengthName))
	}
}

func TestRawRequestIsOneTensor(t *testing.T) {
	s := StartHTTP(t, rest.Config{MaxInputBytes: 20000}, nil)
	want := answerTo("id_int32", "INT32", "[2]", `"parameters":{"binary_data_size":8}`) + inputBytes
	if got := s.Do(t, "POST", "/v2/models/id_int32/infer", inputBytes, inference.HeaderLengthName+": 0"); got.Body != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if req := s.Core.Last(); !req.Raw || len(req.Inputs) != 1 {
		t.Errorf("request: got %+v, want a raw one", req)
	}
	empty := "200 application/json " + answerTo("id_int32", "INT32", "[0]", `"parameters":{"binary_data_size":0}`)
	if got := s.Do(t, "POST", "/v2/models/id_int32/infer", "").String(); got != empty {
		t.Errorf("empty body: got %s, want %s", got, empty)
	}
	c := s.Connect(t)
	c.Send("POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	if got := c.Receive("POST").String(); got != empty {
		t.Errorf("empty chunked body: got %s, want %s", got, empty)
	}
	for _, chunked := range []bool{false, true} {
		data := strings.Repeat("x", 20001)
		c := s.Connect(t)
		size := "20001"
		if chunked {
			c.Send("POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + inference.HeaderLengthName + ": 0\r\n\r\n4e21\r\n" + data + "\r\n0\r\n\r\n")
		} else {
			c.Send(Text("POST", "/v2/models/id_uint8/infer", data, inference.HeaderLengthName+": 0"))
		}
		want := "400 application/json " + ErrorBody("Raw input has a byte_size ("+size+" bytes) that exceeds the maximum allowed value of 20000 bytes. Use --http-max-input-size to increase the limit.")
		if got := c.Receive("POST").String(); got != want {
			t.Errorf("chunked %v: got %s, want %s", chunked, got, want)
		}
	}
}

func TestParametersAndHeadersReachTheCore(t *testing.T) {
	s := StartHTTP(t, rest.Config{ForwardPattern: "^x-|^tri"}, nil)
	got := s.Infer(t, "id_int32", `{"id":"a\"b","parameters":{"sequence_id":7,"sequence_id":8,"sequence_start":true,"sequence_end":true,"priority":2,"timeout":1500,`+
		`"s":"t","i":-5,"b":false,"d":1.5,"huge":9223372036854775808,"s":"again"},"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}`, "",
		"X-One: 1", "x-TWO:  two \t ", "Y: z", "X-One: 3")
	if got.Status != 200 || !strings.HasPrefix(got.Body, `{"id":"a\"b",`) {
		t.Fatalf("got %s", got)
	}
	req := s.Core.Last()
	if req.ID != `a"b` || req.Correlation.Number != 7 || req.Flags != infer.SequenceStart|infer.SequenceEnd || req.Priority != 2 || req.TimeoutMicros != 1500 {
		t.Errorf("request: got %+v", req)
	}
	want := []infer.Parameter{
		{Name: "s", Kind: infer.StringParameter, String: "t"},
		{Name: "i", Kind: infer.IntParameter, Int: -5},
		{Name: "b", Kind: infer.BoolParameter},
		{Name: "d", Kind: infer.DoubleParameter, Double: 1.5},
		{Name: "huge", Kind: infer.DoubleParameter, Double: 1 << 63},
		{Name: "X-One", Kind: infer.StringParameter, String: "1"},
		{Name: "x-TWO", Kind: infer.StringParameter, String: "two \t "}, // Triton keeps trailing white space
		{Name: "X-One", Kind: infer.StringParameter, String: "3"},
	}
	if fmt.Sprint(req.Parameters) != fmt.Sprint(want) {
		t.Errorf("parameters:\n got %+v\nwant %+v", req.Parameters, want)
	}
	body := oneInput("INT32", "[1]", `"data":[1]`)
	if got, want := s.Infer(t, "id_int32", body, "", "triton_x: 1").String(), "400 application/json "+
		ErrorBody("Header 'triton_x' is reserved for Triton usage and cannot be forwarded."); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.Infer(t, "id_int32", strings.Replace(body, "{", `{"parameters":{"sequence_id":"seven"},`, 1), "")
	if got := s.Core.Last().Correlation.Text; got != "seven" {
		t.Errorf("correlation id: got %q, want seven", got)
	}
}

func TestClassificationReplacesTheOutput(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	const inputs = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,4],"data":[1,2.5,3,3,-1,1e10,0,7]}],"outputs":[{"name":"OUTPUT0","parameters":{"classification":%s}}]}`
	got := s.Infer(t, "classes", fmt.Sprintf(inputs, "2"), "").String()
	if want := "200 application/json " + answerTo("classes", "BYTES", "[2,2]", `"data":["3.000000:2","3.000000:3:horse","10000000000.000000:1:dog","7.000000:3:horse"]`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	blob := string(testkit.TensorData("3.000000:2", "10000000000.000000:1:dog"))
	got = s.Infer(t, "classes", fmt.Sprintf(inputs, `1,"binary_data":true`), "").Body
	if want := answerTo("classes", "BYTES", "[2,1]", fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, len(blob))) + blob; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got = s.Infer(t, "id_bool", strings.Replace(oneInput("BOOL", "[1]", `"data":[true]`), "}]}", `}],"outputs":[{"name":"OUTPUT0","parameters":{"classification":1}}]}`, 1), "").String()
	if want := "400 text/plain " + ErrorBody("class result not available for output due to unsupported type 'BOOL'"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestOddResponsesBecomeErrors checks the errors for invalid responses of models.
func TestOddResponsesBecomeErrors(t *testing.T) {
	answer := func(name string, answer func(*infer.Request, infer.Sender) error) *FakeModel {
		m := Model(name, 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
		m.Infer = func(_ context.Context, req *infer.Request, send infer.Sender) error { return answer(req, send) }
		return m
	}
	one := func(out infer.Tensor) func(*infer.Request, infer.Sender) error {
		return func(req *infer.Request, send infer.Sender) error {
			send(&infer.Response{Model: req.Model, Version: 3, Outputs: []infer.Tensor{out}, Final: true})
			return nil
		}
	}
	core := servertest.NewCore(
		answer("none", func(_ *infer.Request, send infer.Sender) error {
			send(&infer.Response{Empty: true, Final: true})
			return nil
		}),
		answer("two", func(_ *infer.Request, send infer.Sender) error {
			send(&infer.Response{})
			send(&infer.Response{Final: true})
			return nil
		}),
		answer("refuses", func(*infer.Request, infer.Sender) error {
			return infer.Errorf(infer.Unavailable, "[request id: <id_unknown>] Exceeds maximum queue size")
		}),
		answer("parameters", func(_ *infer.Request, send infer.Sender) error {
			send(&infer.Response{Model: "m", Version: 2, Final: true, Parameters: []infer.Parameter{
				{Name: "i", Kind: infer.IntParameter, Int: -1}, {Name: "b", Kind: infer.BoolParameter, Bool: true},
				{Name: "d", Kind: infer.DoubleParameter, Double: math.Inf(1)}, {Name: "s\n", Kind: infer.StringParameter, String: `"`}}})
			return nil
		}),
		answer("fp16", one(infer.Tensor{Name: "O", DataType: infer.FP16, Shape: []int64{1}, Data: []byte("ab")})),
		answer("short", one(infer.Tensor{Name: "O", DataType: infer.Int32, Shape: []int64{2}, Data: []byte("abcd")})),
		answer("cut", one(infer.Tensor{Name: "O", DataType: infer.Bytes, Shape: []int64{1}, Data: []byte("\x05\x00\x00\x00abc")})),
		answer("scalar", one(infer.Tensor{Name: "O", DataType: infer.Int32, Data: []byte("\x05\x00\x00\x00")})),
		answer("panics", func(*infer.Request, infer.Sender) error { panic("a bug") }),
	)
	core.Panics = true
	s := StartHTTP(t, rest.Config{}, core)
	for _, tt := range []struct{ model, want string }{
		{"none", "500 text/plain " + ErrorBody("expected a single response, got 0")},
		{"two", "500 text/plain " + ErrorBody("expected a single response, got 2")},
		{"fails", "503 text/plain " + ErrorBody("it fails: \"ü\" /x")},
		{"refuses", "503 application/json " + ErrorBody("[request id: <id_unknown>] Exceeds maximum queue size")},
		{"parameters", `200 application/json {"model_name":"m","model_version":"2","parameters":{"i":-1,"b":true,"d":Infinity,"s\n":"\""},"outputs":[]}`},
		{"fp16", "400 text/plain " + ErrorBody("sending FP16 data via JSON is not supported. Please use the binary data format for output")},
		{"short", "500 text/plain " + ErrorBody("output 'O' of shape [2] has 4 bytes, want 8")},
		{"cut", "500 text/plain " + ErrorBody("output 'O': element 0 of the BYTES tensor runs past its end")},
		{"scalar", `200 application/json {"model_name":"scalar","model_version":"3","outputs":[{"name":"O","datatype":"INT32","shape":[],"data":[5]}]}`},
		{"decoupled", "501 text/plain " + ErrorBody("HTTP end point doesn't support models with decoupled transaction policy")},
		{"panics", "500 text/plain " + ErrorBody("internal error while serving the request")},
	} {
		if got := s.Infer(t, tt.model, oneInput("INT32", "[1]", `"data":[1]`), "").String(); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.model, got, tt.want)
		}
		// The same with an input that is in a block.
		head := oneInput("UINT8", "[9000]", `"parameters":{"binary_data_size":9000}`)
		if got := s.Infer(t, tt.model, head, strings.Repeat("x", 9000)).String(); got != tt.want && tt.model != "decoupled" {
			t.Errorf("%s with a block:\n got %s\nwant %s", tt.model, got, tt.want)
		}
	}
}

// TestReplacedBeforeItRuns checks that a request whose version is replaced after its head was read
// runs on the successor and gets the successor's labels.
func TestReplacedBeforeItRuns(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, servertest.NewCore(servertest.ReplacedModel()))
	head := `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,2]}],"outputs":[{"name":"OUTPUT0","parameters":{"classification":1}}]}`
	for range 2 {
		got := s.Infer(t, "replaced", head, "").String()
		if want := "200 application/json " + answerTo("replaced", "BYTES", "[1,1]", `"data":["2.000000:1:new"]`); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
