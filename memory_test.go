package nereid_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	"github.com/nereid-serving/nereid/sdk"
)

// waiter is a doubler that waits until its gate is closed.
type waiter struct {
	doubler
	gate chan struct{}
}

func (w waiter) NewModel(*sdk.ModelEnv) (sdk.Model, error)          { return w, nil }
func (w waiter) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return w, nil }

func (w waiter) Execute(ctx context.Context, requests []*sdk.Request) error {
	<-w.gate
	return w.doubler.Execute(ctx, requests)
}

// TestShortMemoryRefusesLargeRequests gives the process much uncharged memory. Large requests must
// be rejected over both protocols, small ones served, and metrics and log must show it. When the
// memory is free again, all requests are served. Where it comes with connections that hold much
// memory, these must be ended, first the one with most.
func TestShortMemoryRefusesLargeRequests(t *testing.T) {
	debug.FreeOSMemory() // memory left over from earlier tests should not count
	o := options(t, testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"double/config.pbtxt": strings.Replace(doubleConfig, `"python"`, `"doubler"`, 1), "double/1/": "",
		"wait/config.pbtxt": strings.Replace(doubleConfig, `"python"`, `"waiter"`, 1), "wait/1/": "",
	}))
	gate := make(chan struct{}) // closed at the end
	nereid.WithBackend("doubler", newDoubler)(&o)
	nereid.WithBackend("waiter", func(*sdk.BackendEnv) (sdk.Backend, error) { return waiter{gate: gate}, nil })(&o)
	var log testkit.Buffer
	o.Logger = zerolog.New(&log)
	o.RequestMemoryBytes = 64 << 20
	s, _, _ := serve(t, o)
	defer close(gate)
	conn, err := grpc.NewClient(s.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const small, large = 100, 20_000 // elements of 4 bytes
	overHTTP := func(n int) (int, string) {
		body := `{"inputs":[{"name":"X","datatype":"INT32","shape":[` + strconv.Itoa(n) + `],"data":[` + strings.Repeat("1000,", n-1) + `1]}]}`
		return request(t, "http://"+s.HTTPAddr().String()+"/v2/models/double/infer", body)
	}
	overGRPC := func(model string, n int) error {
		_, err := grpcservice.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), &kserve.ModelInferRequest{
			ModelName:        model,
			Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "INT32", Shape: []int64{int64(n)}}},
			RawInputContents: [][]byte{make([]byte, 4*n)},
		})
		return err
	}
	gauge := func(name string) string {
		_, page := request(t, "http://"+s.MetricsAddr().String()+"/metrics", "")
		match := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(page)
		if match == nil {
			t.Fatalf("there is no metric %s", name)
		}
		return match[1]
	}
	serves := func(n int) bool {
		code, _ := overHTTP(n)
		return code == http.StatusOK && overGRPC("double", n) == nil
	}
	if !serves(small) || !serves(large) {
		t.Fatal("requests are not served at first")
	}

	uncharged := make([][]byte, 300)
	for i := range uncharged {
		uncharged[i] = make([]byte, 1<<20)
		for j := 0; j < len(uncharged[i]); j += 4096 {
			uncharged[i][j] = 1
		}
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return gauge("nereid_memory_pressure") == "1" })
	if code, answer := overHTTP(large); code != http.StatusServiceUnavailable || !strings.Contains(answer, "short of memory") {
		t.Errorf("a large body over HTTP: got status %d, %s, want 503", code, answer)
	}
	if err := overGRPC("double", large); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "short of memory") {
		t.Errorf("a large body over gRPC: got %v, want RESOURCE_EXHAUSTED", err)
	}
	if !serves(small) {
		t.Error("small requests are not served while memory is short")
	}
	short := regexp.MustCompile(`"memory_real_bytes":\d{9,},"memory_short":true`)
	testkit.Eventually(t, 10*time.Second, func() bool {
		_, text := request(t, "http://"+s.MetricsAddr().String()+"/status", "")
		return short.MatchString(text)
	})
	for _, want := range []string{"memory is low, large requests are rejected", "the heap is much larger than the charged memory"} {
		testkit.Eventually(t, 10*time.Second, func() bool { return strings.Count(log.String(), want) == 1 })
	}

	runtime.KeepAlive(uncharged) // garbage from here on
	testkit.Eventually(t, 20*time.Second, func() bool { return gauge("nereid_memory_pressure") == "0" && serves(large) })
	if n := gauge("nereid_memory_holders_ended_total"); n != "0" {
		t.Errorf("%s holders were ended, want none: none of them shows anything", n)
	}
	most := make(chan error, 1) // the result of the call
	go func() { most <- overGRPC("wait", 7<<20/4) }()
	least := holds(t, s.HTTPAddr().String(), 2<<20)
	holders := regexp.MustCompile(`"memory_holders":\[{"name":"gRPC connection from [^"]*","bytes":\d{7}},{"name":"HTTP connection from ` + least.LocalAddr().String())
	testkit.Eventually(t, 10*time.Second, func() bool {
		_, text := request(t, "http://"+s.MetricsAddr().String()+"/status", "")
		return holders.MatchString(text)
	})
	uncharged = make([][]byte, 300)
	for i := range uncharged {
		uncharged[i] = make([]byte, 1<<20)
	}
	if err := <-most; status.Code(err) != codes.Unavailable { // the other one is closed later
		t.Errorf("the call with much memory: got %v, want the end of its connection", err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return strings.Contains(log.String(), "gRPC connection from") })
	if _, err := least.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection with much memory: got error %v, want its end", err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return strings.Contains(log.String(), least.LocalAddr().String()) })
	runtime.KeepAlive(uncharged)
	if n := gauge("nereid_memory_holders_ended_total"); n != "2" {
		t.Errorf("%s holders were ended, want 2", n)
	}
}

// holds returns a connection that has sent size bytes of a larger body.
func holds(t *testing.T, address string, size int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	head := "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n"
	if _, err := io.WriteString(conn, head+strings.Repeat(" ", size)); err != nil {
		t.Fatal(err)
	}
	return conn
}
