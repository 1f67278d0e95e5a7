package nereid_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// controlled runs a server with a model "double" that clients can load and unload. It returns the
// server's URL and a gRPC client.
func controlled(t *testing.T, limits budget.Limits) (url string, client grpcservice.GRPCInferenceServiceClient) {
	t.Helper()
	o := options(t, testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"double/config.pbtxt": strings.Replace(doubleConfig, `"python"`, `"doubler"`, 1), "double/1/": "",
	}))
	nereid.WithBackend("doubler", newDoubler)(&o)
	o.ClientLimits = limits
	o.Repository.Control, o.Repository.StartupModels = nereid.ControlExplicit, []string{"double"}
	s, _, _ := serve(t, o)
	conn, err := grpc.NewClient(s.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return "http://" + s.HTTPAddr().String(), grpcservice.NewGRPCInferenceServiceClient(conn)
}

// doubled returns a request of the model "double".
func doubled() *kserve.ModelInferRequest {
	return &kserve.ModelInferRequest{ModelName: "double", RawInputContents: [][]byte{make([]byte, 4)},
		Inputs: []*kserve.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "INT32", Shape: []int64{1}}}}
}

// TestLimitsOfClientsApply checks that each limit on values of clients applies to both protocols: a
// value of that size is accepted, and a larger one is not.
func TestLimitsOfClientsApply(t *testing.T) {
	limits := budget.Limits{SmallBody: 300, RequestID: 20, Parameters: 60, ConfigOverride: 250}
	url, client := controlled(t, limits)
	of := func(n int) string { return strings.Repeat("x", n) }
	const infer, input = "/v2/models/double/infer", `"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]`
	config := func(n int) string {
		const tensor = `[{"name":"%s","data_type":"TYPE_INT32","dims":[-1]}]`
		return fmt.Sprintf("%-*s", n, `{"backend":"doubler","input":`+fmt.Sprintf(tensor, "X")+`,"output":`+fmt.Sprintf(tensor, "Y")+`}`)
	}
	for _, tt := range []struct {
		name     string
		most     int64
		path     string
		body     func(n int) string
		overGRPC func(n int) error
	}{
		{"small body", limits.SmallBody, "/v2/repository/index", func(n int) string { return "{" + strings.Repeat(" ", n-2) + "}" }, func(n int) error {
			_, err := client.ModelReady(t.Context(), &kserve.ModelReadyRequest{Name: "double", Version: strings.Repeat(" ", n-12) + "1"}) // 11 bytes around the version
			return err
		}},
		{"id", limits.RequestID, infer, func(n int) string { return `{"id":"` + of(n) + `",` + input + `}` }, func(n int) error {
			q := doubled()
			q.Id = of(n)
			_, err := client.ModelInfer(t.Context(), q)
			return err
		}},
		{"parameters", limits.Parameters, infer, func(n int) string { return `{"parameters":{"p":"` + of(n-3) + `"},` + input + `}` }, func(n int) error {
			q := doubled() // each parameter has 7 bytes besides its text
			q.Parameters = map[string]*kserve.InferParameter{"p": {ParameterChoice: &kserve.InferParameter_StringParam{StringParam: of(n - 7)}}}
			_, err := client.ModelInfer(t.Context(), q)
			return err
		}},
		{"config", limits.ConfigOverride, "/v2/repository/models/double/load", func(n int) string {
			return `{"parameters":{"config":"` + strings.ReplaceAll(config(n), `"`, `\"`) + `"}}`
		}, func(n int) error {
			_, err := client.RepositoryModelLoad(t.Context(), &kserve.RepositoryModelLoadRequest{ModelName: "double", Parameters: map[string]*kserve.ModelRepositoryParameter{
				"config": {ParameterChoice: &kserve.ModelRepositoryParameter_StringParam{StringParam: config(n)}}}})
			return err
		}},
	} {
		n := int(tt.most)
		said := fmt.Sprint(n) // each limit has another number
		if code, text := request(t, url+tt.path, tt.body(n)); code != http.StatusOK {
			t.Errorf("%s of %d bytes over HTTP: got status %d, %s, want it accepted", tt.name, n, code, text)
		}
		if code, text := request(t, url+tt.path, tt.body(n+1)); code != http.StatusBadRequest || !strings.Contains(text, said) {
			t.Errorf("%s of %d bytes over HTTP: got status %d, %s, want it refused", tt.name, n+1, code, text)
		}
		if err := tt.overGRPC(n); err != nil {
			t.Errorf("%s of %d bytes over gRPC: got %v, want it accepted", tt.name, n, err)
		}
		if err := tt.overGRPC(n + 1); status.Code(err) != codes.InvalidArgument && status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), said) {
			t.Errorf("%s of %d bytes over gRPC: got %v, want it refused", tt.name, n+1, err)
		}
	}
}

// TestNamesOfModelsAreBounded checks that a model's name of more than 4 KiB is invalid at every
// endpoint that takes one. A shorter name of no model gets another error, or none.
func TestNamesOfModelsAreBounded(t *testing.T) {
	url, client := controlled(t, budget.Limits{})
	const said = " has 4097 bytes, but at most 4096 are allowed"
	for method, call := range map[string]func(ctx context.Context, name string) error{
		"ModelReady": func(ctx context.Context, name string) error {
			_, err := client.ModelReady(ctx, &kserve.ModelReadyRequest{Name: name})
			return err
		},
		"ModelMetadata": func(ctx context.Context, name string) error {
			_, err := client.ModelMetadata(ctx, &kserve.ModelMetadataRequest{Name: name})
			return err
		},
		"ModelConfig": func(ctx context.Context, name string) error {
			_, err := client.ModelConfig(ctx, &kserve.ModelConfigRequest{Name: name})
			return err
		},
		"ModelStatistics": func(ctx context.Context, name string) error {
			_, err := client.ModelStatistics(ctx, &kserve.ModelStatisticsRequest{Name: name})
			return err
		},
		"RepositoryModelLoad": func(ctx context.Context, name string) error {
			_, err := client.RepositoryModelLoad(ctx, &kserve.RepositoryModelLoadRequest{ModelName: name})
			return err
		},
		"RepositoryModelUnload": func(ctx context.Context, name string) error {
			_, err := client.RepositoryModelUnload(ctx, &kserve.RepositoryModelUnloadRequest{ModelName: name})
			return err
		},
		"ModelInfer": func(ctx context.Context, name string) error {
			q := doubled()
			q.ModelName = name
			_, err := client.ModelInfer(ctx, q)
			return err
		},
	} {
		for n, refused := range map[int]bool{budget.MaxName: false, budget.MaxName + 1: true} {
			err := call(t.Context(), strings.Repeat("x", n))
			if got := status.Code(err) == codes.InvalidArgument && strings.HasSuffix(status.Convert(err).Message(), said); got != refused {
				t.Errorf("%s with %d bytes: got %.200v, want it refused: %v", method, n, err, refused)
			}
		}
	}
	for path, body := range map[string]string{
		"/v2/models/%s": "", "/v2/models/%s/ready": "", "/v2/models/%s/config": "", "/v2/models/%s/stats": "",
		"/v2/models/%s/infer": "{}", "/v2/models/%s/generate": "{}", "/v2/models/%s/generate_stream": "{}",
		"/v2/repository/models/%s/load": "{}", "/v2/repository/models/%s/unload": "{}", "/v2/repository/models/%s/instances": `{"count":1}`,
	} {
		for n, refused := range map[int]bool{budget.MaxName: false, budget.MaxName + 1: true} {
			code, text := request(t, url+fmt.Sprintf(path, strings.Repeat("x", n)), body)
			if got := code == http.StatusBadRequest && strings.Contains(text, said); got != refused {
				t.Errorf("%s with %d bytes: got status %d, %.200s, want it refused: %v", path, n, code, text, refused)
			}
		}
	}
}

// TestGoHeapLimitFollowsTheAccount checks that a server sets the memory limit of the Go runtime
// while it is open, and only if LimitGoHeap says so.
func TestGoHeapLimitFollowsTheAccount(t *testing.T) {
	const own = math.MaxInt64 / 2 // the operator's
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(own))
	for _, follows := range []bool{true, false} {
		o := options(t, t.TempDir())
		o.LimitGoHeap = follows
		s, err := nereid.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if follows {
			testkit.Eventually(t, 10*time.Second, func() bool { return debug.SetMemoryLimit(-1) < own })
		} else {
			// The watcher takes over freed memory, and gives it back when it has looked at the heap.
			account := s.Account()
			testkit.Eventually(t, 10*time.Second, func() bool {
				account.Must(budget.Bodies, 1<<20)
				account.Give(budget.Bodies, 1<<20)
				return account.Used(budget.Released) > 0
			})
			testkit.Eventually(t, 10*time.Second, func() bool { return account.Used(budget.Released) == 0 })
			if got := debug.SetMemoryLimit(-1); got != own {
				t.Errorf("the limit is %d, want the operator's", got)
			}
		}
		s.Close()
		if got := debug.SetMemoryLimit(-1); got != own {
			t.Errorf("the limit is %d after the server's end, want the operator's again", got)
		}
	}
}
