package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// TestProbesWaitForNothing checks that the live and ready probes and their gRPC equivalents reply
// while a load or a poll hangs in a model's initialize and another model's queue is full.
func TestProbesWaitForNothing(t *testing.T) {
	for name, flags := range map[string][]string{
		"explicit": {"--model-control-mode=explicit", "--load-model=busy"},
		"poll":     {"--model-control-mode=poll", "--repository-poll-secs=1"},
	} {
		t.Run(name, func(t *testing.T) {
			signs := t.TempDir()
			waits := func(sign string) string {
				return fmt.Sprintf("open('%[1]s/%[2]s', 'w').close()\n        while not os.path.exists('%[1]s/gate'):\n            time.sleep(0.01)\n", signs, sign)
			}
			const head = "import os, time\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
			slow := head + "    def initialize(self, args):\n        " + waits("loading") + "\n    def execute(self, requests):\n        return []\n"
			repository := writeFiles(t, map[string]string{
				"busy/config.pbtxt": oneFloat,
				"busy/1/model.py":   head + "    def execute(self, requests):\n        " + waits("executing") + "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUTPUT0', r.inputs()[0].as_numpy())]) for r in requests]\n",
			})
			s := start(t, testkit.Python(t).Path, repository, append(flags, "--model-max-queued-requests=2")...)

			const clients = 6
			answered := make(chan int, clients)
			for range clients {
				go func() {
					status, _, err := s.try("POST", "/v2/models/busy/infer", nil, []byte(oneValue))
					if err != nil {
						status = 0
					}
					answered <- status
				}()
			}
			s.until("executing", func() bool { return hasFile(signs, "executing") })
			for range clients - 4 { // at most one executes, one is queued in the stub, and two wait
				if status := <-answered; status != http.StatusServiceUnavailable {
					t.Errorf("a request to a queue that is full: got %d, want 503", status)
				}
			}
			testkit.WriteFiles(t, repository, map[string]string{"slow/config.pbtxt": oneFloat, "slow/1/model.py": slow})
			loaded := make(chan int, 1)
			if name == "explicit" {
				go func() {
					status, _, _ := s.try("POST", "/v2/repository/models/slow/load", nil, nil)
					loaded <- status
				}()
			}
			s.until("loading", func() bool { return hasFile(signs, "loading") })

			if status, _ := s.request("GET", "/v2/health/live", ""); status != http.StatusOK {
				t.Errorf("live: got %d, want 200", status)
			}
			if status, _ := s.request("GET", "/v2/health/ready", ""); status != http.StatusBadRequest {
				t.Errorf("ready, strictly, during a load: got %d, want 400", status)
			}
			if status, _ := s.request("GET", "/v2/models/busy/ready", ""); status != http.StatusOK {
				t.Errorf("the model whose queue is full: got %d, want 200", status)
			}
			conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", s.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			triton := grpcservice.NewGRPCInferenceServiceClient(conn)
			if reply, err := triton.ServerLive(t.Context(), &kserve.ServerLiveRequest{}); err != nil || !reply.Live {
				t.Errorf("ServerLive: got %v, error %v", reply, err)
			}
			if reply, err := triton.ServerReady(t.Context(), &kserve.ServerReadyRequest{}); err != nil || reply.Ready {
				t.Errorf("ServerReady: got %v, error %v", reply, err)
			}
			check, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if err != nil || check.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				t.Errorf("Health.Check: got %v, error %v", check, err)
			}
			select {
			case status := <-loaded:
				t.Errorf("the load has ended with %d before its model has", status)
			default:
			}

			testkit.WriteFiles(t, signs, map[string]string{"gate": ""})
			for range 4 {
				if status := <-answered; status != http.StatusOK && status != http.StatusServiceUnavailable {
					t.Errorf("a request that waited: got %d", status)
				}
			}
			s.until("ready", func() bool { status, _ := s.request("GET", "/v2/health/ready", ""); return status == http.StatusOK })
		})
	}
}

func hasFile(directory, name string) bool {
	_, err := os.Stat(filepath.Join(directory, name))
	return err == nil
}
