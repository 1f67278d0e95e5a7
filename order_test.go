package nereid_test

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

const (
	orderedConfig = `
backend: "python"
max_batch_size: 1
model_transaction_policy { decoupled: true }
dynamic_batching { preserve_ordering: true }
input [{ name: "X" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }]
instance_group [{ kind: KIND_CPU }]
`
	// floodsOutOfOrder answers the first request only after the flood for the second.
	floodsOutOfOrder = `
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def answer(n):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, n), np.int32))])


class TritonPythonModel:
    def initialize(self, args):
        self.flooded = threading.Event()

    def execute(self, requests):
        for r in requests:
            target = self.first if r.request_id() == "first" else self.flood
            threading.Thread(target=target, args=(r.get_response_sender(),)).start()

    def first(self, sender):
        self.flooded.wait()
        sender.send(answer(1), flags=FINAL)

    def flood(self, sender):
        while not sender.is_cancelled():
            for _ in range(64):
                sender.send(answer(1024))
        sender.send(flags=FINAL)
        self.flooded.set()
`
)

// TestResponsesKeptForOrderAreBounded makes a model flood one request while the previous one is
// open. The flood ends at the model's share of memory, and the client gets its beginning and the
// error. Another model is served meanwhile.
func TestResponsesKeptForOrderAreBounded(t *testing.T) {
	root := repository(t, doubleModel)
	testkit.WriteFiles(t, root, map[string]string{"ordered/config.pbtxt": orderedConfig, "ordered/1/model.py": floodsOutOfOrder})
	o := options(t, root)
	o.RequestMemoryBytes = 64 << 20 // the model's frames may take 8 MiB of this
	s, _, _ := serve(t, o)
	conn, err := grpc.NewClient(s.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := grpcservice.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, id := range []string{"first", "flood"} {
		if err := stream.Send(&kserve.ModelInferRequest{
			ModelName: "ordered", Id: id, RawInputContents: [][]byte{make([]byte, 4)},
			Inputs: []*kserve.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "INT32", Shape: []int64{1, 1}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if status, text := request(t, "http://"+s.HTTPAddr().String()+"/v2/models/double/infer",
		`{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[4]}]}`); status != 200 {
		t.Errorf("another model: got status %d, %s", status, text)
	}
	flooded := 0
	for n := 0; ; n++ {
		reply, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if id := reply.GetInferResponse().GetId(); id != "first" {
				t.Errorf("the first response is of request %q, want first", id)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
		if text := reply.GetErrorMessage(); text != "" {
			if want := `a request of model "ordered" version 1 holds `; !strings.HasPrefix(text, want) {
				t.Errorf("the flood ended with %q, want %q", text, want)
			}
			break
		}
		flooded++
	}
	if flooded < 200 || flooded > 2048 {
		t.Errorf("%d responses of 4 KiB came before the error, want at most as many as 8 MiB hold", flooded)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	held := regexp.MustCompile(`nereid_model_memory_bytes\{kind="frames",model="ordered"`)
	testkit.Eventually(t, 10*time.Second, func() bool {
		_, page := request(t, "http://"+s.MetricsAddr().String()+"/metrics", "")
		return strings.Contains(page, `nereid_memory_bytes{kind="frames"} 0`) && !held.MatchString(page)
	})
}
