package integration

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// doublesModel returns twice its input in a new array.
const doublesModel = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", 2 * r.inputs()[0].as_numpy())]) for r in requests
        ]
`

// TestUnreadStreamLeavesOthersServed checks that a client that sends many requests on a stream and
// never reads does not prevent the model from serving other clients.
func TestUnreadStreamLeavesOthersServed(t *testing.T) {
	const requests, size = 4200, 8 << 10
	repository := writeFiles(t, map[string]string{
		"m/config.pbtxt": `
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
`,
		"m/1/model.py": doublesModel,
	})
	s := start(t, testkit.Python(t).Path, repository, "--grpc-stream-stall-timeout-seconds=3600") // unread streams must stay open
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", s.grpc),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	stream, err := grpcservice.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	request := &kserve.ModelInferRequest{
		ModelName:        "m",
		Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "UINT8", Shape: []int64{size}}},
		RawInputContents: [][]byte{make([]byte, size)},
	}
	for i := range requests {
		if err := stream.Send(request); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	body := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[%d],"data":[%s1]}]}`, size, strings.Repeat("1,", size-1))
	// All requests of the stream must be executed, and the next one too.
	s.until("through with the stream", func() bool {
		if status, text := s.request("POST", "/v2/models/m/infer", body); status != 200 {
			t.Fatalf("another client: got %d: %s", status, text)
		}
		_, text := s.request("GET", "/v2/models/m/stats", "")
		match := inferenceCount.FindStringSubmatch(text)
		if match == nil {
			t.Fatalf("statistics: %s", text)
		}
		n, _ := strconv.Atoi(match[1])
		return n > requests
	})
}

var inferenceCount = regexp.MustCompile(`"inference_count":(\d+)`)
