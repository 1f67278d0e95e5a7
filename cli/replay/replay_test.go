package replay_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"github.com/nereid-serving/nereid/cli/replay"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server/recording"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// report is the output of --json.
type report struct {
	Requests []outcome `json:"requests"`
	Same     int       `json:"same"`
	NotSent  int       `json:"not_sent"`
}

type outcome struct {
	File        string   `json:"file"`
	Result      string   `json:"result"`
	Differences []string `json:"differences"`
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
	if status := replay.Run([]string{directory, "--json", "--url", s.URL}, &out, &errs); status != 1 || errs.Len() > 0 {
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
	if status := replay.Run([]string{directory, "--json", "--url", s.URL, fmt.Sprintf("--concurrency=%d", beside)}, &out, &errs); status != 0 || errs.Len() > 0 {
		t.Fatalf("got status %d, %s %s", status, out.String(), errs.String())
	}
	var told report
	if err := json.Unmarshal([]byte(out.String()), &told); err != nil {
		t.Fatal(err)
	}
	if told.Same != number || !slices.IsSortedFunc(told.Requests, func(a, b outcome) int { return strings.Compare(a.File, b.File) }) {
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
	status := replay.Run([]string{directory, "--url", s.URL, "--concurrency=3"}, &out, &errs)
	if status != 1 || strings.Count(errs.String(), "no server answers at ") != 1 || !strings.Contains(out.String(), "the same, 0 different") {
		t.Errorf("got status %d, %s %s", status, out.String(), errs.String())
	}
}

// TestDecoupledRequestsNeedGRPC replays a request to a decoupled model without a gRPC endpoint.
func TestDecoupledRequestsNeedGRPC(t *testing.T) {
	directory := t.TempDir()
	record(t, directory, 0, &recording.Record{Model: "m", Version: 1, Decoupled: true, Received: time.Now()})
	var out, errs strings.Builder
	status := replay.Run([]string{directory, fmt.Sprintf("--grpc-url=127.0.0.1:%d", testkit.Ports(t, 1)[0])}, &out, &errs)
	if want := "connection refused; requests to decoupled models need the gRPC endpoint: give its address with --grpc-url"; status != 1 || !strings.Contains(errs.String(), want) {
		t.Errorf("got status %d, %s, want %q", status, errs.String(), want)
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
		status := replay.Run([]string{directory, "--protocol=" + protocol, "--url=" + web.URL, "--grpc-url=" + listener.Addr().String()}, &out, &errs)
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
		"the directory with records is missing":     nil,
		"does not exist: want a directory with":     {directory + "/absent"},
		`--protocol is "tcp", want http or grpc`:    {directory, "--protocol=tcp"},
		"--concurrency is 0, want 1 to 1000":        {directory, "--concurrency=0"},
		"--tolerance is -1, want 0 or more":         {directory, "--tolerance=-1"},
		"flag provided but not defined: --nonsense": {directory, "--nonsense"},
	} {
		var out, errs strings.Builder
		if status := replay.Run(args, &out, &errs); status != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: got status %d, %q, want 2 and %q", args, status, errs.String(), want)
		}
	}
	var out, errs strings.Builder
	if status := replay.Run([]string{directory}, &out, &errs); status != 1 || !strings.Contains(errs.String(), "there are no records in ") {
		t.Errorf("an empty directory: got status %d, %q", status, errs.String())
	}
}
