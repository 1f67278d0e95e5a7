package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// leavesOutModel has two outputs and returns one of them.
const leavesOutModel = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
`

// TestVerboseLinesNameCancellations checks that verbose logs name each cancelled gRPC request and
// the outputs of an ensemble that no step has produced. An environment variable selects messages
// without quotes.
func TestVerboseLinesNameCancellations(t *testing.T) {
	t.Setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "FALSE")
	directory := t.TempDir()
	files := map[string]string{
		"waits/config.pbtxt": batchConfig(directory, "", "max_batch_size: 1\n"), "waits/1/model.py": batchModel,
		"part/config.pbtxt": "backend: \"python\"\n" + tensorLines("input", "IN0") + tensorLines("output", "OUT0 OUT1"), "part/1/model.py": leavesOutModel,
	}
	ensembleFiles(files, "whole", "A", "B C", "", "part(IN0=A)->OUT0=B,OUT1=C")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--log-verbose=1")

	body := `{"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[1]}]}`
	if status, answer := s.request("POST", "/v2/models/whole/infer", body); status != http.StatusOK {
		t.Errorf("got %d %s", status, answer)
	}
	if !s.prints("] Composing models did not output tensor C\n") {
		t.Error("the log does not say which output no step has given")
	}

	connection, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", s.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	client := grpcservice.NewGRPCInferenceServiceClient(connection)
	request := func(id string) *kserve.ModelInferRequest {
		return &kserve.ModelInferRequest{ModelName: "waits", Id: id, RawInputContents: [][]byte{make([]byte, 4)},
			Inputs: []*kserve.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "FP32", Shape: []int64{1, 1}}}}
	}
	for handler, send := range map[string]func(ctx context.Context, id string) error{
		"ModelInferHandler": func(ctx context.Context, id string) error {
			_, err := client.ModelInfer(ctx, request(id))
			return err
		},
		"ModelStreamInferHandler": func(ctx context.Context, id string) error {
			stream, err := client.ModelStreamInfer(ctx)
			if err == nil {
				err = stream.Send(request(id))
			}
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		line := "] Cancellation notification received for " + handler + ", rpc_ok=1, context 0, 0 step ISSUED\n"
		if err := send(t.Context(), "answered"+handler); err != nil {
			t.Errorf("%s: %v", handler, err)
		}
		if strings.Contains(s.log.String(), line) {
			t.Errorf("%s: a request that was answered is said to be cancelled", handler)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- send(ctx, "hold"+handler) }()
		s.until("it is executed", func() bool {
			_, err := os.Stat(filepath.Join(directory, "waits.hold"+handler+".begun"))
			return err == nil
		})
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: a cancelled request was answered", handler)
		}
		if n := s.printed(line, 1); n != 1 {
			t.Errorf("the log says %d times %q, want once", n, line)
		}
		if err := os.WriteFile(filepath.Join(directory, "waits.hold"+handler), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
}
