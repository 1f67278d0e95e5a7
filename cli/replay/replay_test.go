package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server/recording"
)

func TestMain(m *testing.M) { testkit.Main(m) }

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
	one := func(messages ...recording.Message) []recording.Message { return messages }
	for _, c := range []struct {
		name    string
		c       comparison
		was, is []recording.Message
		want    string
	}{
		{"the same", comparison{}, one(outputs(floats("A", 1, 2), texts("B", "x"))), one(outputs(texts("B", "x"), floats("A", 1, 2))), ""},
		{"an element", comparison{}, one(outputs(floats("A", 1, 2, 3))), one(outputs(floats("A", 1, 2.5, 4))), "output A: element [0,1] is 2.5, was 2; 2 of 3 elements differ"},
		{"within the tolerance", comparison{tolerance: 1e-3}, one(outputs(floats("A", 1000, 0))), one(outputs(floats("A", 1000.9, .0009))), ""},
		{"beyond the tolerance", comparison{tolerance: 1e-3}, one(outputs(floats("A", 1000, 0))), one(outputs(floats("A", 1001.5, .0011))), "output A: element [0,0] is 1001.5, was 1000; 2 of 2 elements differ"},
		{"what is no number", comparison{}, one(outputs(floats("A", nan, 0))), one(outputs(floats("A", other, float32(math.Copysign(0, -1))))), ""},
		{"a number that is none any more", comparison{tolerance: 1e9}, one(outputs(floats("A", 1))), one(outputs(floats("A", nan))), "output A: element [0,0] is NaN, was 1"},
		{"infinite", comparison{tolerance: 1}, one(outputs(floats("A", float32(math.Inf(1))))), one(outputs(floats("A", float32(math.Inf(-1))))), "output A: element [0,0] is -Inf, was +Inf"},
		{"tolerance of integers", comparison{tolerance: 1}, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Int8, 255))), "output A: element [0] is -1, was 1"},
		{"texts", comparison{}, one(outputs(texts("A", "", "b"))), one(outputs(texts("A", "", "\x00"))), `output A: element [1] is "\x00", was "b"; 1 of 2 elements differ`},
		{"texts of other lengths", comparison{}, one(outputs(texts("A", "ab"))), one(outputs(texts("A", "a"))), `output A: element [0] is "a", was "ab"`},
		{"a half", comparison{tolerance: 1e-2}, one(outputs(raw("A", infer.FP16, 0, 0x3c, 1, 0))), one(outputs(raw("A", infer.FP16, 4, 0x3c, 0, 0x80))), ""},
		{"a brain float", comparison{}, one(outputs(raw("A", infer.BF16, 0x80, 0x3f))), one(outputs(raw("A", infer.BF16, 0, 0x40))), "output A: element [0] is 2, was 1"},
		{"a type", comparison{}, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Uint8, 1))), "output A: the type is UINT8, was INT8"},
		{"a shape", comparison{}, one(outputs(raw("A", infer.Int8, 1))), one(outputs(raw("A", infer.Int8, 1, 2))), "output A: the shape is [2], was [1]"},
		{"an incomplete element", comparison{}, one(outputs(raw("A", infer.Int16, 1, 0, 2, 0))), one(outputs(cut)), `output A: element [1] is "\x02", was 2; 1 of 2 elements differ`},
		{"names", comparison{}, one(outputs(floats("A", 1))), one(outputs(floats("B", 1))), "output A is missing | output B is new"},
		{"ignored", comparison{ignored: ignored{outputs: map[string]bool{"A": true, "B": true}}}, one(outputs(floats("A", 1))), one(outputs(floats("B", 1))), ""},
		{"redacted", comparison{}, one(outputs(hidden)), one(outputs(floats("A", 5))), ""},
		{"redacted, of another shape", comparison{}, one(outputs(hidden)), one(outputs(floats("A", 5, 6))), "output A: the shape is [1,2], was [1,1]"},
		{"redacted inputs", comparison{namesAlone: true}, one(outputs(floats("A", 1))), one(outputs(floats("A", 5, 6))), ""},
		{"errors", comparison{}, one(refusal("x")), one(refusal("x")), ""},
		{"other errors", comparison{}, one(refusal("x")), one(refusal("y")), `the error is "y", was "x"`},
		{"an error for a response", comparison{}, one(outputs()), one(refusal("y")), `it is the error "y", was a response`},
		{"a response for an error", comparison{}, one(refusal("x")), one(outputs()), `it is a response, was the error "x"`},
		{"a stream", comparison{}, one(outputs(), refusal("x")), one(outputs(), refusal("y"), outputs()), `response 2: the error is "y", was "x" | 3 responses, was 2`},
		{"nothing", comparison{}, one(refusal("x")), nil, `no response, was the error "x"`},
		{"parameters", comparison{}, one(parameters(number("a", 1), number("b", 2))), one(parameters(number("b", 3), number("c", 4), number("sequence_id", 1))), "parameter a is missing, was 1 | parameter b is 3, was 2 | parameter c is new: 4"},
		{"a whole number", comparison{}, one(parameters(infer.Parameter{Name: "a", Kind: infer.DoubleParameter, Double: 2})), one(parameters(number("a", 2))), ""},
		{"parameters that are ignored", comparison{ignored: ignored{parameters: map[string]bool{"a": true}}}, one(parameters(number("a", 1))), one(parameters(number("a", 2))), ""},
	} {
		if got := strings.Join(c.c.compare(c.was, c.is), " | "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestDifferencesAreBounded checks that only the first of many or long differences are kept.
func TestDifferencesAreBounded(t *testing.T) {
	was, is := make([]recording.Message, 5000), make([]recording.Message, 5000)
	for i := range was {
		was[i], is[i] = refusal("x"), refusal("y")
	}
	c := comparison{}
	many := c.compare(was, is)
	if n := len(many); n > 2000 || many[n-1] != fmt.Sprintf("and %d more differences", 5000-n+1) {
		t.Errorf("got %d differences, the last of them %q", n, many[n-1])
	}
	is[0].Err = &infer.Error{Message: strings.Repeat("y", 1<<20)}
	if long := c.compare(was[:1], is[:1]); len(long) != 1 || len(long[0]) > infer.MaxEcho {
		t.Errorf("got %d differences, the first of %d bytes", len(long), len(long[0]))
	}
}

// TestValuesOfAllTypesAreShown checks the text of a value of each data type with all bits set, and
// the conversion of half-precision numbers.
func TestValuesOfAllTypesAreShown(t *testing.T) {
	all := []byte{255, 255, 255, 255, 255, 255, 255, 255}
	for d, want := range map[infer.DataType]string{
		infer.Bool: "true", infer.Uint8: "255", infer.Int8: "-1", infer.Uint16: "65535", infer.Int16: "-1", infer.Uint32: "4294967295", infer.Int32: "-1",
		infer.Uint64: "18446744073709551615", infer.Int64: "-1", infer.FP16: "NaN", infer.BF16: "NaN", infer.FP32: "NaN", infer.FP64: "NaN",
	} {
		if got := value(d, all[:d.Size()]); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	for bits, want := range map[uint16]float64{0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 1: math.Ldexp(1, -24), 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := float64(infer.FromFP16(bits)); got != want {
			t.Errorf("half %#x: got %v, want %v", bits, got, want)
		}
	}
	if got := value(infer.Bytes, []byte(strings.Repeat("x", 100))); got != `"`+strings.Repeat("x", 60)+`"… (100 bytes)` {
		t.Errorf("got %s", got)
	}
}

// record writes one record file.
func record(t *testing.T, directory string, number int, r *recording.Record) {
	t.Helper()
	f, err := os.Create(filepath.Join(directory, fmt.Sprintf("20260101T000000.000000000Z-%06d%s", number, recording.Extension)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := r.WriteTo(f); err != nil {
		t.Fatal(err)
	}
}

// TestRequestsGoOverHTTPAsTheyCame checks the HTTP requests that a replay sends, and the errors for
// malformed replies.
func TestRequestsGoOverHTTPAsTheyCame(t *testing.T) {
	directory := t.TempDir()
	request := recording.Message{
		Asked: 2, ID: "7", Parameters: []infer.Parameter{{Name: "p", Kind: infer.StringParameter, String: "v"}}, Wanted: []string{"B"},
		Tensors: []recording.Tensor{raw("A", infer.Int8, 5, 6), {Tensor: infer.Tensor{Name: "H", DataType: infer.Bytes, Shape: []int64{2}}, Redacted: true}},
	}
	answer := recording.Message{Tensors: []recording.Tensor{raw("B", infer.Int8, 1)}}
	record(t, directory, 1, &recording.Record{Model: "m/../x", Version: 2, Received: time.Now(), Request: request, Answers: []recording.Message{answer}})
	request.Tensors, request.Wanted, request.Asked, request.Parameters = nil, nil, infer.LatestVersion, nil
	for number, model := range []string{"noJSON", "short", "noBinary", "noError"} {
		record(t, directory, 2+number, &recording.Record{Model: model, Version: 1, Received: time.Now(), Request: request, Answers: []recording.Message{answer}})
	}
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.EscapedPath()+" "+r.Header.Get(client.LengthHeader)+" "+string(body))
		switch {
		case strings.Contains(r.URL.Path, "noJSON"):
			_, _ = w.Write([]byte("hello"))
		case strings.Contains(r.URL.Path, "short"):
			w.Header().Set(client.LengthHeader, "1000")
			_, _ = w.Write([]byte("{}"))
		case strings.Contains(r.URL.Path, "noBinary"):
			_, _ = w.Write([]byte(`{"outputs":[{"name":"B","shape":[1],"datatype":"INT8","data":[1]}]}`))
		case strings.Contains(r.URL.Path, "noError"):
			http.Error(w, "proxy", http.StatusBadGateway)
		default:
			head := `{"model_name":"m","outputs":[{"name":"B","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}`
			w.Header().Set(client.LengthHeader, fmt.Sprint(len(head)))
			_, _ = w.Write([]byte(head + "\x01"))
		}
	}))
	defer s.Close()
	var out, errs strings.Builder
	if status := Run([]string{directory, "--json", "--url", s.URL}, &out, &errs); status != 1 || errs.Len() > 0 {
		t.Errorf("got status %d, %s", status, errs.String())
	}
	head := `{"id":"7","parameters":{"p":"v"},"inputs":[{"name":"A","shape":[2],"datatype":"INT8","parameters":{"binary_data_size":2}},` +
		`{"name":"H","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":8}}],"outputs":[{"name":"B","parameters":{"binary_data":true}}]}`
	if want := fmt.Sprintf("/v2/models/m%%2F..%%2Fx/versions/2/infer %d %s\x05\x06\x00\x00\x00\x00\x00\x00\x00\x00", len(head), head); got[0] != want {
		t.Errorf("got  %q\nwant %q", got[0], want)
	}
	if want := `{"id":"7","parameters":{"binary_data_output":true},"inputs":[]}`; !strings.HasSuffix(got[1], want) {
		t.Errorf("got %q, want %q", got[1], want)
	}
	var told report
	if err := json.Unmarshal([]byte(out.String()), &told); err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, o := range told.Requests {
		results = append(results, o.Result+": "+strings.Join(o.Differences, " "))
	}
	want := []string{
		"same: ", "not sent: the response is not JSON", "not sent: the response has Inference-Header-Content-Length", "not sent: output B of the response has no binary data",
		"not sent: the server answered with status 502 Bad Gateway and without a KServe error",
	}
	if told.Same != 1 || told.NotSent != 4 || !slices.EqualFunc(results, want, strings.HasPrefix) {
		t.Errorf("got %q, want %q", results, want)
	}
}

// TestSequencesKeepTheirOrder replays several sequences at once, and checks that each has one
// request in flight at a time and in order, that requests without a sequence run in parallel, and
// that the report follows the order of the files.
func TestSequencesKeepTheirOrder(t *testing.T) {
	const beside, sequences, each = 4, 3, 10
	directory := t.TempDir()
	number := 0
	add := func(model string, parameters ...infer.Parameter) {
		number++
		request := recording.Message{ID: fmt.Sprint(number), Parameters: parameters}
		record(t, directory, number, &recording.Record{Model: model, Version: 1, Received: time.Now(), Request: request, Answers: []recording.Message{{}}})
	}
	for range beside {
		add("plain")
	}
	for range each {
		for i := range sequences {
			p := infer.Parameter{Name: "sequence_id", Kind: infer.IntParameter, Int: int64(i + 1)}
			if i == 0 {
				p = infer.Parameter{Name: "sequence_id", Kind: infer.StringParameter, String: "text"}
			}
			add("sequence", p)
		}
	}
	var mu sync.Mutex
	inside, under := 0, map[string]bool{}
	ids := map[string][]string{}
	together := make(chan struct{}) // closed when all requests without a sequence are in flight
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID         string
			Parameters map[string]any
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &q); err != nil {
			t.Error(err)
		}
		if strings.Contains(r.URL.Path, "plain") {
			mu.Lock()
			if inside++; inside == beside {
				close(together)
			}
			mu.Unlock()
			<-together
		} else {
			id := fmt.Sprint(q.Parameters["sequence_id"])
			mu.Lock()
			if under[id] {
				t.Errorf("two requests of sequence %s are under way", id)
			}
			under[id] = true
			ids[id] = append(ids[id], q.ID)
			mu.Unlock()
			defer func() { mu.Lock(); under[id] = false; mu.Unlock() }()
		}
		w.Header().Set(client.LengthHeader, "2")
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	var out, errs strings.Builder
	if status := Run([]string{directory, "--json", "--url", s.URL, fmt.Sprintf("--concurrency=%d", beside)}, &out, &errs); status != 0 || errs.Len() > 0 {
		t.Fatalf("got status %d, %s %s", status, out.String(), errs.String())
	}
	var told report
	if err := json.Unmarshal([]byte(out.String()), &told); err != nil {
		t.Fatal(err)
	}
	if told.Same != number || !slices.IsSortedFunc(told.Requests, func(a, b *outcome) int { return strings.Compare(a.File, b.File) }) {
		t.Errorf("got %d the same, want %d in the order of the files", told.Same, number)
	}
	if len(ids) != sequences {
		t.Errorf("got the sequences %v, want %d", ids, sequences)
	}
	for id, list := range ids {
		if len(list) != each || !slices.IsSortedFunc(list, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) {
			t.Errorf("sequence %s: got the requests %v, want %d in their order", id, list, each)
		}
	}
}

// TestReplayEndsWithTheServer stops the server halfway, and checks that the results so far are
// reported and nothing more is sent.
func TestReplayEndsWithTheServer(t *testing.T) {
	directory := t.TempDir()
	for number := range 50 {
		record(t, directory, number, &recording.Record{Model: "m", Version: 1, Received: time.Now(), Answers: []recording.Message{{}}})
	}
	var s *httptest.Server
	var answered atomic.Int64
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answered.Add(1) == 5 {
			_ = s.Listener.Close()
		}
		w.Header().Set("Connection", "close")
		w.Header().Set(client.LengthHeader, "2")
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	var out, errs strings.Builder
	status := Run([]string{directory, "--url", s.URL, "--concurrency=3"}, &out, &errs)
	if status != 1 || strings.Count(errs.String(), "no server answers at ") != 1 || !strings.Contains(out.String(), "the same, 0 different") {
		t.Errorf("got status %d, %s %s", status, out.String(), errs.String())
	}
}

// TestAnswersAreBounded checks that a replay limits the size of replies over HTTP and gRPC, unary
// and streamed.
func TestAnswersAreBounded(t *testing.T) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer web.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := grpc.NewServer()
	grpcservice.RegisterGRPCInferenceServiceServer(calls, endlessServer{block: block})
	testkit.Serve(t, listener, calls)
	directory := t.TempDir()
	answers := []recording.Message{outputs(raw("A", infer.Uint8, 1))}
	for number, decoupled := range []bool{false, true} {
		record(t, directory, number, &recording.Record{Model: "m", Version: 1, Decoupled: decoupled, Received: time.Now(), Answers: answers})
	}
	for _, protocol := range []string{"http", "grpc"} {
		var out, errs strings.Builder
		status := Run([]string{directory, "--protocol=" + protocol, "--url=" + web.URL, "--grpc-url=" + listener.Addr().String()}, &out, &errs)
		if status != 1 || strings.Count(out.String(), ": the response has more than 67110914 bytes, far more than the recorded one\n") != 2 || !strings.Contains(out.String(), "2 different, 0 not sent") {
			t.Errorf("%s: got status %d, %s%s", protocol, status, out.String(), errs.String())
		}
	}
}

// endlessServer replies with 65 blocks, and endlessly on streams.
type endlessServer struct {
	grpcservice.UnimplementedGRPCInferenceServiceServer
	block []byte
}

func (e endlessServer) ModelInfer(context.Context, *kserve.ModelInferRequest) (*kserve.ModelInferResponse, error) {
	return &kserve.ModelInferResponse{RawOutputContents: [][]byte{bytes.Repeat(e.block, 65)}}, nil
}

func (e endlessServer) ModelStreamInfer(stream grpc.BidiStreamingServer[kserve.ModelInferRequest, kserve.ModelStreamInferResponse]) error {
	reply := &kserve.ModelStreamInferResponse{InferResponse: &kserve.ModelInferResponse{
		Outputs: []*kserve.ModelInferResponse_InferOutputTensor{{}}, RawOutputContents: [][]byte{e.block},
	}}
	for {
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// TestWrongCommandLinesOfReplay checks the errors for invalid command lines.
func TestWrongCommandLinesOfReplay(t *testing.T) {
	directory := t.TempDir()
	for want, args := range map[string][]string{
		"got 0 directories, want one with records":  nil,
		"does not exist: want a directory with":     {directory + "/absent"},
		`--protocol is "tcp", want http or grpc`:    {directory, "--protocol=tcp"},
		"--concurrency is 0, want 1 to 1000":        {directory, "--concurrency=0"},
		"--tolerance is -1, want 0 or more":         {directory, "--tolerance=-1"},
		"flag provided but not defined: --nonsense": {directory, "--nonsense"},
	} {
		var out, errs strings.Builder
		if status := Run(args, &out, &errs); status != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: got status %d, %q, want 2 and %q", args, status, errs.String(), want)
		}
	}
	var out, errs strings.Builder
	if status := Run([]string{directory}, &out, &errs); status != 1 || !strings.Contains(errs.String(), "there are no records in ") {
		t.Errorf("an empty directory: got status %d, %q", status, errs.String())
	}
}
