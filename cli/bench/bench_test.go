package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server/recording"
)

// TestHistogramKeepsQuantiles compares the histogram's quantiles with those of the sorted values.
func TestHistogramKeepsQuantiles(t *testing.T) {
	for _, most := range []int64{3, 200, 1000, 1e6, 1e12} {
		var h, first, second histogram
		values := make([]int64, 10_000)
		for i := range values {
			values[i] = rand.Int64N(most)
			h.add(time.Duration(values[i]))
			if i%3 == 0 {
				first.add(time.Duration(values[i]))
			} else {
				second.add(time.Duration(values[i]))
			}
		}
		slices.Sort(values)
		first.merge(&second)
		for _, q := range []float64{.01, .5, .9, .99, .999, 1} {
			want := values[int(math.Ceil(q*float64(len(values))))-1]
			for _, found := range []time.Duration{h.quantile(q), first.quantile(q)} {
				if math.Abs(float64(found)-float64(want)) > float64(want)/subBuckets {
					t.Errorf("values below %d, quantile %v: got %d, want %d", most, q, found, want)
				}
			}
		}
		if h.most != time.Duration(values[len(values)-1]) || h.total != uint64(len(values)) {
			t.Errorf("values below %d: got most %d of %d", most, h.most, h.total)
		}
	}
	if (&histogram{}).quantile(.5) != 0 || (&histogram{}).mean() != 0 {
		t.Error("an empty histogram has values")
	}
}

func config() *kserve.ModelConfig {
	return &kserve.ModelConfig{Name: "m", MaxBatchSize: 4, Input: []*kserve.ModelInput{
		{Name: "F", DataType: kserve.DataType_TYPE_FP32, Dims: []int64{2}},
		{Name: "T", DataType: kserve.DataType_TYPE_STRING, Dims: []int64{-1}},
		{Name: "O", DataType: kserve.DataType_TYPE_INT64, Dims: []int64{1}, Optional: true},
	}}
}

// TestDataOfFiles checks that --data reads files in perf_analyzer's format.
func TestDataOfFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.json")
	text := `{"data": [{"F": [1, 2.5], "T": {"content": ["a", "bc"], "shape": [2]}},
		[{"F": {"b64": "AACAPwAAAEA="}, "T": {"content": ["x"], "shape": [1]}, "O": [9223372036854775807]}]]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	samples, err := makeSamples(&options{data: path, batch: 2}, config())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 2 || len(samples[0]) != 2 || len(samples[1]) != 3 {
		t.Fatalf("got %d samples, %+v", len(samples), samples)
	}
	first := []byte{0, 0, 128, 63, 0, 0, 32, 64}
	if f := samples[0][0]; !slices.Equal(f.Shape, []int64{2, 2}) || !bytes.Equal(f.Data, append(slices.Clone(first), first...)) {
		t.Errorf("F: got shape %v, bytes %v", f.Shape, f.Data)
	}
	if text := samples[0][1]; !slices.Equal(text.Shape, []int64{2, 2}) || string(text.Data) != strings.Repeat("\x01\x00\x00\x00a\x02\x00\x00\x00bc", 2) {
		t.Errorf("T: got shape %v, bytes %q", text.Shape, text.Data)
	}
	if o := samples[1][2]; !bytes.Equal(o.Data[:8], []byte{255, 255, 255, 255, 255, 255, 255, 127}) {
		t.Errorf("O: got %v", o.Data)
	}
}

// TestDataThatDoesNotFit checks that the error names the fault.
func TestDataThatDoesNotFit(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "data.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, o := range map[string]*options{
		"dimension 0 of [-1] may have any size: set it with --shape, such as --shape T:1": {data: write(`{"data": [{"F": [1, 2], "T": ["a"]}]}`)},
		"input F: --shape gives it 3 dimensions, want 1: the model's config has [2]":      {shapes: map[string][]int64{"F": {1, 2, 3}}},
		`--input names input "X", but model m has F, T, O`:                                {inputs: map[string]string{"X": zero}},
		`request 0 names input "X"`:                       {data: write(`{"data": [{"X": [1]}]}`)},
		"it has 3 bytes, want 8 for shape [1,2] of FP32":  {inputs: map[string]string{"F": "@" + write("abc")}},
		"has no requests":                                 {data: write(`{"data": []}`)},
		`input F: word is not a value of type FP32`:       {data: write(`{"data": [{"F": ["word", "x"], "T": {"content": ["a"], "shape": [1]}}]}`)},
		"it has 1 elements, want 3 for shape [1,3]":       {data: write(`{"data": [{"F": [1, 2], "T": {"content": ["a"], "shape": [3]}}]}`)},
		"shape [9000000000000000000] has more than":       {shapes: map[string][]int64{"F": {9e18}}},
		"input T: shape [1,1000000000] has more than 429": {shapes: map[string][]int64{"T": {1e9}}},
	} {
		o.batch, o.textLength = 1, 10
		if strings.Contains(want, "[9000") {
			want = "shape [1,9000000000000000000] has more than"
		}
		if _, err := makeSamples(o, config()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// TestFilesAreElements checks that a file becomes one element of a BYTES input.
func TestFilesAreElements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	samples, err := makeSamples(&options{inputs: map[string]string{"T": "@" + path}, batch: 1, textLength: 10}, config())
	if err != nil {
		t.Fatal(err)
	}
	if text := samples[0][1]; !slices.Equal(text.Shape, []int64{1, 1}) || string(text.Data) != "\x03\x00\x00\x00abc" {
		t.Errorf("got shape %v, bytes %q", text.Shape, text.Data)
	}
}

// TestDimensionsOfAnySizeAreOne checks that dimensions of any size become 1 in generated inputs,
// and that the model's configuration is not changed.
func TestDimensionsOfAnySizeAreOne(t *testing.T) {
	c := config()
	samples, err := makeSamples(&options{batch: 2, textLength: 10}, c)
	if err != nil || !slices.Equal(samples[0][1].Shape, []int64{2, 1}) {
		t.Errorf("got %+v, %v", samples, err)
	}
	if dims := c.GetInput()[1].GetDims(); !slices.Equal(dims, []int64{-1}) {
		t.Errorf("the configuration has changed to %v", dims)
	}
}

// TestSpreadNeedsTwoSeconds checks that the table shows no spread for levels shorter than two
// seconds.
func TestSpreadNeedsTwoSeconds(t *testing.T) {
	var out bytes.Buffer
	(&report{SharedMemory: "none", Levels: []*row{{level: level{Concurrency: 1}, Seconds: 1.9}, {level: level{Concurrency: 2}, Seconds: 2, Spread: .5}}}).write(&out)
	lines := strings.Split(out.String(), "\n")
	if a, b := strings.Fields(lines[2])[2], strings.Fields(lines[3])[2]; a != "-" || b != "50%" {
		t.Errorf("got\n%s", &out)
	}
}

// TestSequencesOfModels checks that requests have sequence parameters only if the model's clients
// create the sequences, which excludes iterative_sequence.
func TestSequencesOfModels(t *testing.T) {
	for batching, want := range map[string]bool{"": false, `"sequence_batching":{"direct":{}},`: true, `"sequence_batching":{"iterative_sequence":true},`: false} {
		var found, asked atomic.Bool
		url := fakeOf(t, batching, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			found.Store(found.Load() || bytes.Contains(body, []byte("sequence_")))
			asked.Store(true)
		})
		if _, _, stderr := bench(t, "--url", url); !asked.Load() || found.Load() != want {
			t.Errorf("%s: got sequences %t, want %t: %s", batching, found.Load(), want, stderr)
		}
	}
}

// TestRecordedInputsAreSamples checks that the inputs of the model's recorded requests become
// samples, in order, and that redacted inputs become zeros.
func TestRecordedInputsAreSamples(t *testing.T) {
	directory := t.TempDir()
	for i, model := range []string{"m", "other", "m"} {
		f, err := os.Create(filepath.Join(directory, string(rune('a'+i))+recording.Extension))
		if err != nil {
			t.Fatal(err)
		}
		r := &recording.Record{Model: model, Request: recording.Message{Tensors: []recording.Tensor{
			{Tensor: infer.Tensor{Name: "F", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{byte(i + 1)}}},
			{Tensor: infer.Tensor{Name: "T", DataType: infer.Int16, Shape: []int64{2}}, Redacted: true},
		}}}
		if _, err := r.WriteTo(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	samples, err := makeSamples(&options{record: directory, model: "m"}, config())
	if err != nil || len(samples) != 2 || samples[1][0].Data[0] != 3 || len(samples[0][1].Data) != 4 {
		t.Errorf("got %+v, %v", samples, err)
	}
	if _, err := makeSamples(&options{record: directory, model: "n"}, config()); err == nil || !strings.Contains(err.Error(), "has no recorded requests to model n") {
		t.Errorf("got %v", err)
	}
}

// TestRandomValuesFitTheirTypes generates random values and zeros of each data type, and checks
// their bytes.
func TestRandomValuesFitTheirTypes(t *testing.T) {
	for d := infer.Bool; d <= infer.BF16; d++ {
		c := &kserve.ModelConfig{Name: "m", Input: []*kserve.ModelInput{{Name: "X", DataType: kserve.DataType(d), Dims: []int64{7, 3}}}}
		for _, fill := range []string{random, zero} {
			s, err := makeSamples(&options{batch: 1, textLength: 5, inputs: map[string]string{"X": fill}}, c)
			if err != nil {
				t.Errorf("%s: %v", d, err)
				continue
			}
			if d == infer.Bool && slices.Max(s[0][0].Data) > 1 {
				t.Errorf("%s: got %v", d, s[0][0].Data)
			}
			if zeros := bytes.Count(s[0][0].Data, []byte{0}) == len(s[0][0].Data); zeros != (fill == zero) && d != infer.Bytes {
				t.Errorf("%s filled with %s: got %v", d, fill, s[0][0].Data)
			}
		}
	}
}

// fake starts an HTTP server for a model m, whose inferences are handled by infer.
func fake(t *testing.T, infer http.HandlerFunc) (url string) {
	t.Helper()
	return fakeOf(t, "", infer)
}

// fakeOf is fake with additional members at the beginning of the model configuration.
func fakeOf(t *testing.T, members string, infer http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewServer(fakeHandler(members, infer))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func fakeHandler(members string, infer http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	answer := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	answer("GET /v2", `{"name":"fake","version":"1"}`)
	answer("GET /v2/models/m/config", `{`+members+`"name":"m","platform":"p","input":[{"name":"X","data_type":"TYPE_INT32","dims":["2"]}],"unknown":1}`)
	answer("GET /v2/models/m/stats", `{"model_stats":[]}`)
	mux.HandleFunc("POST /v2/models/m/infer", infer)
	return mux
}

// bench runs the command and returns its report, exit status and error output.
func bench(t *testing.T, arguments ...string) (r report, status int, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Run(append([]string{"m", "--json=-", "--warm-up=0", "--duration=100ms"}, arguments...), &out, &errs)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
	}
	return r, status, errs.String()
}

// TestErrorsAreCounted runs against a server that rejects every third request, and checks the
// counts, the error texts and the exit status.
func TestErrorsAreCounted(t *testing.T) {
	var n atomic.Int64
	url := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":"too busy"}`))
		}
	})
	r, status, _ := bench(t, "--url", url, "--concurrency=2")
	if status != 1 {
		t.Errorf("exit status %d, want 1, as requests failed", status)
	}
	l := r.Levels[0]
	if l.Requests == 0 || l.Errors == 0 || math.Abs(float64(l.Requests)-2*float64(l.Errors)) > 8 || !slices.Equal(l.Texts, []string{"503: too busy"}) {
		t.Errorf("%d answered, %d errors: %q", l.Requests, l.Errors, l.Texts)
	}
}

// TestTableWithoutAnswers checks that the table shows dashes for missing measurements.
func TestTableWithoutAnswers(t *testing.T) {
	var out bytes.Buffer
	(&report{Model: "m", SharedMemory: "none", Levels: []*row{{level: level{Concurrency: 1}, Errors: 3, Texts: []string{"400: no"}, Where: &where{}}}}).write(&out)
	if lines := strings.Split(out.String(), "\n"); len(lines) != 5 || strings.Join(strings.Fields(lines[2]), " ") != "1 0 - - - - - - - - 3" || lines[3] != "1: error: 400: no" {
		t.Errorf("got\n%s", &out)
	}
}

// TestLateAnswers checks that an unanswered request fails after --timeout while other requests
// continue.
func TestLateAnswers(t *testing.T) {
	var n atomic.Int64
	release := make(chan struct{})
	url := fake(t, func(http.ResponseWriter, *http.Request) {
		if n.Add(1) == 2 {
			<-release
		}
	})
	defer close(release)
	r, _, _ := bench(t, "--url", url, "--timeout=200ms", "--duration=1s")
	if l := r.Levels[0]; l.Errors == 0 || l.Requests < 2 || !slices.Equal(l.Texts, []string{"no answer in 200ms"}) {
		t.Errorf("%d answered, %d errors: %q", l.Requests, l.Errors, l.Texts)
	}
}

// TestRatesDoNotWait checks that --rate keeps its rate against a slow server, with more requests in
// flight.
func TestRatesDoNotWait(t *testing.T) {
	var underWay, most atomic.Int64
	url := fake(t, func(http.ResponseWriter, *http.Request) {
		for now := underWay.Add(1); ; {
			if was := most.Load(); was >= now || most.CompareAndSwap(was, now) {
				break
			}
		}
		time.Sleep(100 * time.Millisecond) // simulates the model's work
		underWay.Add(-1)
	})
	r, status, stderr := bench(t, "--url", url, "--rate=200", "--duration=1s")
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	if l := r.Levels[0]; l.Requests < 100 || most.Load() <= firstCallers || l.Latency.P50 < 99_000 {
		t.Errorf("%d answered, p50 %v, %d under way at a time, want some 180 requests, and 20", l.Requests, l.Latency.P50, most.Load())
	}
}

// TestRepliesAreBounded checks that endless HTTP replies are cut off with an error.
func TestRepliesAreBounded(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		for block := bytes.Repeat([]byte("x"), 1<<20); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	list := httptest.NewServer(http.HandlerFunc(endless))
	defer list.Close()
	if _, status, stderr := bench(t, "--url", list.URL); status != 1 || !strings.Contains(stderr, "GET /v2: the reply has more than 64 MiB") {
		t.Errorf("metadata: got status %d, %s", status, stderr)
	}
	r, status, stderr := bench(t, "--url", fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		endless(w, r)
	}))
	if len(r.Levels) != 1 || status != 1 || len(r.Levels[0].Texts) != 1 || r.Levels[0].Texts[0] != "418: "+strings.Repeat("x", 200) {
		t.Errorf("errors: got status %d, %s, %+v", status, stderr, r.Levels)
	}
	head, status, stderr := bench(t, "--url", fake(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n"); err != nil {
			return
		}
		for line := []byte("A: " + strings.Repeat("x", 1<<10) + "\r\n"); ; {
			if _, err := conn.Write(line); err != nil {
				return
			}
		}
	}))
	if len(head.Levels) != 1 || status != 1 || len(head.Levels[0].Texts) != 1 || head.Levels[0].Texts[0] != "the head of the reply has more than 1048576 bytes" {
		t.Errorf("heads: got status %d, %s, %+v", status, stderr, head.Levels)
	}
}

// TestConfigsAreBounded checks that a config cannot make requests huge: with many, repeated or
// verbose inputs and outputs.
func TestConfigsAreBounded(t *testing.T) {
	input := func(name string, dims ...int64) *kserve.ModelInput {
		return &kserve.ModelInput{Name: name, DataType: kserve.DataType_TYPE_INT8, Dims: dims}
	}
	const large = " bytes to describe, want at most 1048576"
	for _, c := range []struct {
		config *kserve.ModelConfig
		want   string
	}{
		{config(), ""},
		{&kserve.ModelConfig{Input: []*kserve.ModelInput{input("A", 1), input("B", 1), input("A", 2)}}, `has input "A" twice`},
		{&kserve.ModelConfig{Input: make([]*kserve.ModelInput, 5000)}, large},
		{&kserve.ModelConfig{Input: []*kserve.ModelInput{input("A", make([]int64, 1<<17)...)}}, large},
		{&kserve.ModelConfig{Output: []*kserve.ModelOutput{{Name: strings.Repeat("A", 1<<20)}}}, large},
	} {
		err := (&prepared{options: &options{model: "m"}, model: c.config}).check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q in it", err, c.want)
		}
	}
}

// TestTextsOfErrorsAreBounded checks that long errors are kept only in part.
func TestTextsOfErrorsAreBounded(t *testing.T) {
	var counts, sum tally
	counts.note(strings.Repeat("x", 1<<20))
	sum.merge(&counts)
	if len(sum.texts) != 1 || len(sum.texts[0]) > infer.MaxEcho || !strings.HasSuffix(sum.texts[0], "x…") {
		t.Errorf("got %d texts", len(sum.texts))
	}
}

// TestRepliesOverGRPCAreBounded checks that the flag for the size of replies also limits gRPC.
func TestRepliesOverGRPCAreBounded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := grpc.NewServer()
	grpcservice.RegisterGRPCInferenceServiceServer(calls, largeReplies{})
	testkit.Serve(t, listener, calls)
	r, status, stderr := bench(t, "--url", listener.Addr().String(), "--protocol=grpc", "--max-reply-bytes=1000")
	if len(r.Levels) != 1 || status != 1 || len(r.Levels[0].Texts) != 1 || !strings.Contains(r.Levels[0].Texts[0], "received message larger than max") {
		t.Errorf("got status %d, %s, %+v", status, stderr, r.Levels)
	}
}

// largeReplies answers each request with 2,000 bytes.
type largeReplies struct {
	grpcservice.UnimplementedGRPCInferenceServiceServer
}

func (largeReplies) ServerMetadata(context.Context, *kserve.ServerMetadataRequest) (*kserve.ServerMetadataResponse, error) {
	return &kserve.ServerMetadataResponse{}, nil
}

func (largeReplies) ModelConfig(context.Context, *kserve.ModelConfigRequest) (*kserve.ModelConfigResponse, error) {
	return &kserve.ModelConfigResponse{Config: &kserve.ModelConfig{Name: "m"}}, nil
}

func (largeReplies) ModelInfer(context.Context, *kserve.ModelInferRequest) (*kserve.ModelInferResponse, error) {
	return &kserve.ModelInferResponse{Id: strings.Repeat("x", 2000)}, nil
}

// TestCommandLines checks the exit status and the error of invalid command lines.
func TestCommandLines(t *testing.T) {
	for arguments, want := range map[string]string{
		"":                            "got 0 models, want the name of one",
		"a b":                         "got 2 models",
		"a --url=localhost":           `--url is "localhost", want host:port, unix:<path>, or a URL such as https://host:8443`,
		"a --nosuch":                  "flag provided but not defined: --nosuch",
		"a --protocol=smtp":           `--protocol is "smtp", want http, grpc or stream`,
		"a --concurrency=0":           `"0" is not a number above 0`,
		"a --concurrency=1.5":         "want a whole number from 1 to 10000",
		"a --concurrency=1:2:3:4":     "is neither N nor START:END:STEP",
		"a --concurrency=4:2":         `"4:2" ends before it begins`,
		"a --rate=1:1e9:1":            "has more than 1000 levels",
		"a --batch=0":                 "--batch is 0, want more than 0",
		"a --input=X":                 "want NAME=random, NAME=zero or NAME=@FILE",
		"a --shape=X:a":               `"a" is not a dimension`,
		"a --shared-memory=cuda":      `--shared-memory is "cuda", want none or system`,
		"a --model-version=one":       `--model-version is "one", want a number above 0`,
		"a --sequence-length=-1":      "--sequence-length is -1, want 0 or more",
		"a --warm-up=-1s":             "--warm-up is -1s, want 0 or more",
		"a --max-reply-bytes=0":       "--max-reply-bytes is 0, want more than 0",
		"a --timeout=0s --duration=1": `invalid value "1" for flag --duration: want a time such as 10s`,
	} {
		var out, errs bytes.Buffer
		if status := Run(strings.Fields(arguments), &out, &errs); status != 2 || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "\nsee nereid bench --help for the options\n") {
			t.Errorf("%q: exit status %d, got %s, want %q", arguments, status, &errs, want)
		}
	}
	var out, errs bytes.Buffer
	if status := Run([]string{"--help"}, &out, &errs); status != 0 || errs.Len() > 0 || !strings.Contains(out.String(), "--concurrency N") {
		t.Errorf("--help: exit status %d: %s%s", status, &out, &errs)
	}
}

// TestComparison checks that levels that occur in both reports are shown with their ratios.
func TestComparison(t *testing.T) {
	before := &report{Model: "m", Levels: []*row{{level: level{Concurrency: 1}, InferPS: 100, Latency: quantiles{Mean: 10, P50: 8, P99: 0}}, {level: level{Rate: 5}}}}
	now := &report{Levels: []*row{{level: level{Concurrency: 1}, InferPS: 150, Latency: quantiles{Mean: 5, P50: 8, P99: 3}}, {level: level{Concurrency: 2}}}}
	path := filepath.Join(t.TempDir(), "before.json")
	if err := before.writeJSON(path, nil); err != nil {
		t.Fatal(err)
	}
	read, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	now.compare(&out, read)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[2]), " ") != "1 ×1.50 ×0.50 ×1.00 -" {
		t.Errorf("got\n%s", &out)
	}
}

// TestModelsThatAreNotThere checks that the error for an unknown model lists existing models, the
// most similar first, and that the error for a model that is not ready gives the reason.
func TestModelsThatAreNotThere(t *testing.T) {
	entry := func(name, version, state, reason string) *kserve.RepositoryIndexResponse_ModelIndex {
		return &kserve.RepositoryIndexResponse_ModelIndex{Name: name, Version: version, State: state, Reason: reason}
	}
	index := []*kserve.RepositoryIndexResponse_ModelIndex{
		entry("churn", "1", "READY", ""), entry("churn", "3", "READY", ""), entry("bert", "1", "READY", ""),
		entry("broken", "1", "UNAVAILABLE", "ValueError: no\nTraceback"), entry("late", "1", "LOADING", ""), entry("idle", "", "", ""),
	}
	many := index
	for i := range 12 {
		many = append(many, entry(fmt.Sprintf("m%02d", i), "1", "READY", ""))
	}
	for _, c := range []struct {
		model string
		index []*kserve.RepositoryIndexResponse_ModelIndex
		want  string
	}{
		{"chrun", index, "did you mean churn? ready models: bert, churn"},
		{"other", index, "ready models: bert, churn"},
		{"other", many, "ready models: bert, churn, m00, m01, m02, m03, m04, m05, m06, m07 and 4 more"},
		{"churn", index, "ready versions: 1, 3"},
		{"broken", index, "it is UNAVAILABLE: ValueError: no"},
		{"late", index, "it is LOADING"},
		{"idle", index, "it is in the repository, but not loaded"},
		{"other", nil, "no model of the server is ready"},
	} {
		if got := instead(c.model, c.index); got != c.want {
			t.Errorf("%s: got %q, want %q", c.model, got, c.want)
		}
	}
}
