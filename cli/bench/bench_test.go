package bench_test

import (
	"bytes"
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
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/cli/bench"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// threeInputs is the configuration of a model m.
const threeInputs = `{"name":"m","max_batch_size":4,"input":[{"name":"F","data_type":"TYPE_FP32","dims":["2"]},
	{"name":"T","data_type":"TYPE_STRING","dims":["-1"]},{"name":"O","data_type":"TYPE_INT64","dims":["1"],"optional":true}]}`

// TestDataThatDoesNotFit checks that the error names the fault.
func TestDataThatDoesNotFit(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "data.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := served(t, fakeHandler(threeInputs, func(http.ResponseWriter, *http.Request) {}))
	for want, arguments := range map[string][]string{
		"dimension 0 of [-1] may have any size: set it with --shape, such as --shape T:1": {"--data", write(`{"data": [{"F": [1, 2], "T": ["a"]}]}`)},
		"input F: --shape gives it 3 dimensions, want 1: the model's config has [2]":      {"--shape", "F:1,2,3"},
		`--input names input "X", but model m has F, T, O`:                                {"--input", "X=zero"},
		`request 0 names input "X"`:                       {"--data", write(`{"data": [{"X": [1]}]}`)},
		"it has 3 bytes, want 8 for shape [1,2] of FP32":  {"--input", "F=@" + write("abc")},
		"has no requests":                                 {"--data", write(`{"data": []}`)},
		`input F: word is not a value of type FP32`:       {"--data", write(`{"data": [{"F": ["word", "x"], "T": {"content": ["a"], "shape": [1]}}]}`)},
		"it has 1 elements, want 3 for shape [1,3]":       {"--data", write(`{"data": [{"F": [1, 2], "T": {"content": ["a"], "shape": [3]}}]}`)},
		"shape [1,9000000000000000000] has more than":     {"--shape", "F:9000000000000000000"},
		"input T: shape [1,1000000000] has more than 429": {"--shape", "T:1000000000"},
	} {
		if _, status, stderr := run(t, append(arguments, "--url", url)...); status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%q: got status %d, %s, want %q in it", arguments, status, stderr, want)
		}
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
		if _, _, stderr := run(t, "--url", url); !asked.Load() || found.Load() != want {
			t.Errorf("%s: got sequences %t, want %t: %s", batching, found.Load(), want, stderr)
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
	return served(t, fakeHandler(`{`+members+`"name":"m","platform":"p","input":[{"name":"X","data_type":"TYPE_INT32","dims":["2"]}],"unknown":1}`, infer))
}

// served returns the address of a server with a handler.
func served(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// fakeHandler serves a model m with a configuration.
func fakeHandler(config string, infer http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	answer := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	answer("GET /v2", `{"name":"fake","version":"1"}`)
	answer("GET /v2/models/m/config", config)
	answer("GET /v2/models/m/stats", `{"model_stats":[]}`)
	mux.HandleFunc("POST /v2/models/m/infer", infer)
	return mux
}

// report is the output of --json.
type report struct {
	URL    string `json:"url"`
	Levels []struct {
		Requests int      `json:"requests"`
		Errors   int      `json:"errors"`
		Texts    []string `json:"error_texts"`
		Latency  struct {
			P50 float64 `json:"p50"`
		} `json:"latency_us"`
	} `json:"levels"`
}

// run runs the command and returns its report, exit status and error output.
func run(t *testing.T, arguments ...string) (r report, status int, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = bench.Run(append([]string{"m", "--json=-", "--warm-up=0", "--duration=100ms"}, arguments...), &out, &errs)
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
	r, status, _ := run(t, "--url", url, "--concurrency=2")
	if status != 1 {
		t.Errorf("exit status %d, want 1, as requests failed", status)
	}
	l := r.Levels[0]
	if l.Requests == 0 || l.Errors == 0 || math.Abs(float64(l.Requests)-2*float64(l.Errors)) > 8 || !slices.Equal(l.Texts, []string{"503: too busy"}) {
		t.Errorf("%d answered, %d errors: %q", l.Requests, l.Errors, l.Texts)
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
	r, _, _ := run(t, "--url", url, "--timeout=200ms", "--duration=1s")
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
	r, status, stderr := run(t, "--url", url, "--rate=200", "--duration=1s")
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	if l := r.Levels[0]; l.Requests < 100 || most.Load() <= 8 || l.Latency.P50 < 99_000 {
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
	if _, status, stderr := run(t, "--url", list.URL); status != 1 || !strings.Contains(stderr, "GET /v2: the reply has more than 64 MiB") {
		t.Errorf("metadata: got status %d, %s", status, stderr)
	}
	r, status, stderr := run(t, "--url", fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		endless(w, r)
	}))
	if len(r.Levels) != 1 || status != 1 || len(r.Levels[0].Texts) != 1 || r.Levels[0].Texts[0] != "418: "+strings.Repeat("x", 200) {
		t.Errorf("errors: got status %d, %s, %+v", status, stderr, r.Levels)
	}
	head, status, stderr := run(t, "--url", fake(t, func(w http.ResponseWriter, r *http.Request) {
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
	}), "--duration=1s")
	if len(head.Levels) != 1 || status != 1 || len(head.Levels[0].Texts) != 1 || head.Levels[0].Texts[0] != "the head of the reply has more than 1048576 bytes" {
		t.Errorf("heads: got status %d, %s, %+v", status, stderr, head.Levels)
	}
}

// TestConfigsAreBounded checks that a config cannot make requests huge: with many, repeated or
// verbose inputs and outputs.
func TestConfigsAreBounded(t *testing.T) {
	const large = " bytes to describe, want at most 1048576"
	for config, want := range map[string]string{
		threeInputs: "",
		`{"input":[{"name":"A"},{"name":"B"},{"name":"A"}]}`:              `has input "A" twice`,
		`{"input":[{}` + strings.Repeat(",{}", 4999) + `]}`:               large,
		`{"input":[{"dims":["1"` + strings.Repeat(`,"1"`, 1<<17) + `]}]}`: large,
		`{"output":[{"name":"` + strings.Repeat("A", 1<<20) + `"}]}`:      large,
	} {
		url := served(t, fakeHandler(config, func(http.ResponseWriter, *http.Request) {}))
		if _, status, stderr := run(t, "--url", url); (status == 0) != (want == "") || !strings.Contains(stderr, want) {
			t.Errorf("%.30s: got status %d, %s, want %q in it", config, status, stderr, want)
		}
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
	r, status, stderr := run(t, "--url", listener.Addr().String(), "--protocol=grpc", "--max-reply-bytes=1000")
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
		"":                            "the name of the model is missing",
		"a b":                         `unexpected argument "b" after the name of the model`,
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
		if status := bench.Run(strings.Fields(arguments), &out, &errs); status != 2 || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "\nsee nereid bench --help for the options\n") {
			t.Errorf("%q: exit status %d, got %s, want %q", arguments, status, &errs, want)
		}
	}
	var out, errs bytes.Buffer
	if status := bench.Run([]string{"--help"}, &out, &errs); status != 0 || errs.Len() > 0 || !strings.Contains(out.String(), "--concurrency N") {
		t.Errorf("--help: exit status %d: %s%s", status, &out, &errs)
	}
}

// TestModelsThatAreNotThere checks that the error for an unknown model lists existing models, the
// most similar first, and that the error for a model that is not ready gives the reason.
func TestModelsThatAreNotThere(t *testing.T) {
	type entry struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		State   string `json:"state"`
		Reason  string `json:"reason"`
	}
	index := []entry{
		{"churn", "1", "READY", ""}, {"churn", "3", "READY", ""}, {"bert", "1", "READY", ""},
		{"broken", "1", "UNAVAILABLE", "ValueError: no\nTraceback"}, {"late", "1", "LOADING", ""}, {"idle", "", "", ""},
	}
	many := index
	for i := range 12 {
		many = append(many, entry{fmt.Sprintf("m%02d", i), "1", "READY", ""})
	}
	for _, c := range []struct {
		model string
		index []entry
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
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v2", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"name":"fake","version":"1"}`)
		})
		mux.HandleFunc("POST /v2/repository/index", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(c.index) })
		var out, errs bytes.Buffer
		if status := bench.Run([]string{c.model, "--url", served(t, mux)}, &out, &errs); status != 1 || !strings.Contains(errs.String(), "; "+c.want+"\n") {
			t.Errorf("%s: got status %d, %s, want %q", c.model, status, &errs, c.want)
		}
	}
}
