package bench_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/server/recording"
)

// keeping is a server for the model of a config, which keeps the first two requests.
type keeping struct {
	grpcservice.UnimplementedGRPCInferenceServiceServer
	config   *kserve.ModelConfig
	mu       sync.Mutex
	requests []*kserve.ModelInferRequest
}

func (*keeping) ServerMetadata(context.Context, *kserve.ServerMetadataRequest) (*kserve.ServerMetadataResponse, error) {
	return &kserve.ServerMetadataResponse{}, nil
}

func (k *keeping) ModelConfig(context.Context, *kserve.ModelConfigRequest) (*kserve.ModelConfigResponse, error) {
	return &kserve.ModelConfigResponse{Config: k.config}, nil
}

func (k *keeping) ModelInfer(_ context.Context, q *kserve.ModelInferRequest) (*kserve.ModelInferResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.requests) < 2 {
		k.requests = append(k.requests, q)
	}
	return &kserve.ModelInferResponse{}, nil
}

// requests returns the first two requests of a run against a model.
func requests(t *testing.T, config *kserve.ModelConfig, arguments ...string) []*kserve.ModelInferRequest {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k, calls := &keeping{config: config}, grpc.NewServer()
	grpcservice.RegisterGRPCInferenceServiceServer(calls, k)
	testkit.Serve(t, listener, calls)
	if _, status, stderr := run(t, append(arguments, "--url", listener.Addr().String(), "--protocol=grpc", "--duration=500ms")...); status != 0 {
		t.Fatalf("%q: got status %d, %s", arguments, status, stderr)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.requests) != 2 {
		t.Fatalf("%q: got %d requests, want two", arguments, len(k.requests))
	}
	return k.requests
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
	got := requests(t, config(), "--data", path, "--batch=2")
	if len(got[0].Inputs) != 2 || len(got[1].Inputs) != 3 {
		t.Fatalf("got %v, want two and three inputs", got)
	}
	first := []byte{0, 0, 128, 63, 0, 0, 32, 64}
	if shape, data := got[0].Inputs[0].Shape, got[0].RawInputContents[0]; !slices.Equal(shape, []int64{2, 2}) || !bytes.Equal(data, append(slices.Clone(first), first...)) {
		t.Errorf("F: got shape %v, bytes %v", shape, data)
	}
	if shape, data := got[0].Inputs[1].Shape, got[0].RawInputContents[1]; !slices.Equal(shape, []int64{2, 2}) || string(data) != strings.Repeat("\x01\x00\x00\x00a\x02\x00\x00\x00bc", 2) {
		t.Errorf("T: got shape %v, bytes %q", shape, data)
	}
	if data := got[1].RawInputContents[2]; !bytes.Equal(data[:8], []byte{255, 255, 255, 255, 255, 255, 255, 127}) {
		t.Errorf("O: got %v", data)
	}
}

// TestFilesAreElements checks that a file becomes one element of a BYTES input.
func TestFilesAreElements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := requests(t, config(), "--input", "T=@"+path)[0]
	if shape, data := got.Inputs[1].Shape, got.RawInputContents[1]; !slices.Equal(shape, []int64{1, 1}) || string(data) != "\x03\x00\x00\x00abc" {
		t.Errorf("got shape %v, bytes %q", shape, data)
	}
}

// TestDimensionsOfAnySizeAreOne checks that dimensions of any size become 1 in generated inputs.
func TestDimensionsOfAnySizeAreOne(t *testing.T) {
	for i, got := range requests(t, config(), "--batch=2") {
		if shape := got.Inputs[1].Shape; !slices.Equal(shape, []int64{2, 1}) {
			t.Errorf("request %d: got shape %v", i, shape)
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
	got := requests(t, config(), "--input-record", directory)
	if first, second := got[0].RawInputContents, got[1].RawInputContents; first[0][0] != 1 || second[0][0] != 3 || !bytes.Equal(first[1], make([]byte, 4)) {
		t.Errorf("got %v and %v", first, second)
	}
	for _, name := range []string{"a", "c"} { // leaves the other model's
		if err := os.Remove(filepath.Join(directory, name+recording.Extension)); err != nil {
			t.Fatal(err)
		}
	}
	if _, status, stderr := run(t, "--url", fake(t, func(http.ResponseWriter, *http.Request) {}), "--input-record", directory); status != 1 || !strings.Contains(stderr, "has no recorded requests to model m") {
		t.Errorf("got status %d, %s", status, stderr)
	}
}

// TestRandomValuesFitTheirTypes generates random values and zeros of each data type, and checks
// their bytes.
func TestRandomValuesFitTheirTypes(t *testing.T) {
	c := &kserve.ModelConfig{Name: "m"}
	for d := infer.Bool; d <= infer.BF16; d++ {
		c.Input = append(c.Input, &kserve.ModelInput{Name: d.String(), DataType: kserve.DataType(d), Dims: []int64{7, 3}})
	}
	for _, fill := range []string{"random", "zero"} {
		arguments := []string{"--string-length=5"}
		for _, input := range c.Input {
			arguments = append(arguments, "--input", input.Name+"="+fill)
		}
		got := requests(t, c, arguments...)[0]
		for i, data := range got.RawInputContents {
			d := infer.ParseDataType(got.Inputs[i].Datatype)
			if d == infer.Bool && slices.Max(data) > 1 {
				t.Errorf("%s: got %v", d, data)
			}
			if zeros := bytes.Count(data, []byte{0}) == len(data); zeros != (fill == "zero") && d != infer.Bytes {
				t.Errorf("%s filled with %s: got %v", d, fill, data)
			}
		}
		if len(got.RawInputContents) != len(c.Input) {
			t.Errorf("got the bytes of %d inputs, want %d", len(got.RawInputContents), len(c.Input))
		}
	}
}
