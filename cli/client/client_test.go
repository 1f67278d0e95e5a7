package client_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestAddresses checks which addresses are accepted, and how they are shown.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"localhost:8000": "localhost:8000", "http://h:8000/": "h:8000", "http://h": "h", "https://h": "https://h", "[::1]:8000": "[::1]:8000",
		"https://gateway/models/": "https://gateway/models", "unix:/run/s": "unix:/run/s", "unix:///run/s": "unix:/run/s", "unix:s": "unix:s",
	} {
		if a, err := client.ParseAddress(text); err != nil || a.String() != want {
			t.Errorf("%s: got %v, %v, want %s", text, a, err, want)
		}
	}
	for _, text := range []string{"", "h", ":8000", "unix:", "ftp://h:1", "http://h:1/?a=b", "http://", "h:port"} {
		if a, err := client.ParseAddress(text); err == nil || !strings.Contains(err.Error(), "want host:port, unix:<path>, or a URL such as https://host:8443") {
			t.Errorf("%q: got %v, %v, want an error", text, a, err)
		}
	}
}

// TestCallsOverHTTP checks the path and body of each call, over TCP with a prefix of the path and
// over a Unix socket.
func TestCallsOverHTTP(t *testing.T) {
	replies := map[string]string{
		"GET /v2 ":                               `{"name":"n"}`,
		"GET /v2/models/a%2Fb/versions/3/ready ": "",
		"GET /v2/models/m/config ":               `{"name":"m","unknown":1}`,
		"GET /v2/models/m/stats ":                `{"model_stats":[{"name":"m"}]}`,
		"POST /v2/repository/index {}":           "[{\"name\":\"m\",\"reason\":\"\xff\"}]",
		"POST /v2/systemsharedmemory/region/r/register {\"byte_size\":8,\"key\":\"/k\",\"offset\":0}": "",
		"POST /v2/systemsharedmemory/region/r/unregister ":                                            "",
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reply, known := replies[r.Method+" "+strings.TrimPrefix(r.URL.EscapedPath(), "/prefix")+" "+string(body)]
		if !known {
			w.WriteHeader(http.StatusBadRequest)
			reply = fmt.Sprintf(`{"error":"%s of %d bytes"}`, r.URL.Path, len(body))
		}
		_, _ = io.WriteString(w, reply)
	})
	over := httptest.NewServer(handler)
	defer over.Close()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	local := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	local.Start()
	defer local.Close()
	for _, address := range []string{over.URL + "/prefix/", "unix:" + path} {
		a, err := client.ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		e := client.NewEndpoint(a, time.Minute)
		defer e.Close()
		server := grpcservice.NewGRPCInferenceServiceClient(e)
		ctx := t.Context()
		if about, err := server.ServerMetadata(ctx, &kserve.ServerMetadataRequest{}); err != nil || about.GetName() != "n" {
			t.Errorf("%s: metadata: got %v, %v", a, about, err)
		}
		if _, err := server.ModelReady(ctx, &kserve.ModelReadyRequest{Name: "a/b", Version: "3"}); err != nil {
			t.Errorf("%s: ready: got %v", a, err)
		}
		if config, err := server.ModelConfig(ctx, &kserve.ModelConfigRequest{Name: "m"}); err != nil || config.GetConfig().GetName() != "m" {
			t.Errorf("%s: config: got %v, %v", a, config, err)
		}
		if all, err := server.ModelStatistics(ctx, &kserve.ModelStatisticsRequest{Name: "m"}); err != nil || all.GetModelStats()[0].GetName() != "m" {
			t.Errorf("%s: statistics: got %v, %v", a, all, err)
		}
		if index, err := server.RepositoryIndex(ctx, &kserve.RepositoryIndexRequest{}); err != nil || index.GetModels()[0].GetReason() != "\ufffd" {
			t.Errorf("%s: index: got %v, %v", a, index, err)
		}
		if _, err := server.SystemSharedMemoryRegister(ctx, &kserve.SystemSharedMemoryRegisterRequest{Name: "r", Key: "/k", ByteSize: 8}); err != nil {
			t.Errorf("%s: register: got %v", a, err)
		}
		if _, err := server.SystemSharedMemoryUnregister(ctx, &kserve.SystemSharedMemoryUnregisterRequest{Name: "r"}); err != nil {
			t.Errorf("%s: unregister: got %v", a, err)
		}
		if _, err := server.ModelConfig(ctx, &kserve.ModelConfigRequest{Name: "x"}); err == nil || !strings.Contains(err.Error(), "/v2/models/x/config of 0 bytes") || !client.IsRefusal(err) {
			t.Errorf("%s: an unknown model: got %v", a, err)
		}
		if _, err := server.ServerLive(ctx, &kserve.ServerLiveRequest{}); err == nil || !strings.HasSuffix(err.Error(), "is not made over HTTP") {
			t.Errorf("%s: another call: got %v", a, err)
		}
	}
}

// TestRequestsKeepEmptyShapes checks the JSON of a request with a scalar and with tensors in shared
// memory.
func TestRequestsKeepEmptyShapes(t *testing.T) {
	region := []infer.Parameter{{Name: "shared_memory_region", Kind: infer.StringParameter, String: "r"}, client.Int("shared_memory_byte_size", 4)}
	r := &client.Request{Model: "m", Inputs: []client.Tensor{
		{Tensor: infer.Tensor{Name: "A", DataType: infer.Int8, Data: []byte{7}}},
		{Tensor: infer.Tensor{Name: "B", DataType: infer.FP32, Shape: []int64{1}, Data: []byte{1, 2, 3, 4}}, Region: region},
	}, Outputs: []client.Tensor{{Tensor: infer.Tensor{Name: "C"}, Region: region}}}
	head, body, err := r.HTTP()
	want := `{"inputs":[{"name":"A","shape":[],"datatype":"INT8","parameters":{"binary_data_size":1}},` +
		`{"name":"B","shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}],` +
		`"outputs":[{"name":"C","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]}`
	if err != nil || string(head) != want || string(body) != "\x07" {
		t.Errorf("got %s %q, %v, want %s", head, body, err, want)
	}
	if m := r.Message(); len(m.GetRawInputContents()) != 1 || m.GetInputs()[1].GetParameters()["shared_memory_byte_size"].GetInt64Param() != 4 {
		t.Errorf("got %v", m)
	}
}

// TestWhyNobodyAnswers checks that only an address where nothing listens is explained with a
// server that loads its models, over HTTP and gRPC, and that Unix sockets have no port.
func TestWhyNobodyAnswers(t *testing.T) {
	const loading = "a server listens once its models are loaded"
	port := testkit.Ports(t, 1)[0]
	for address, want := range map[string]bool{fmt.Sprintf("127.0.0.1:%d", port): true, "unix:" + t.TempDir() + "/none": true, "nosuch.invalid:8000": false} {
		a, err := client.ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		e := client.NewEndpoint(a, 10*time.Second)
		_, err = e.Ask(t.Context(), http.MethodGet, "/v2", nil)
		if err == nil || strings.Contains(err.Error(), loading) != want {
			t.Errorf("%s over HTTP: got error %v, want the hint: %t", address, err, want)
		}
		conn, err := a.GRPC(1000)
		if err != nil {
			t.Fatal(err)
		}
		_, err = grpcservice.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), &kserve.ServerLiveRequest{})
		if err = client.Plain(err); err == nil || strings.Contains(err.Error(), loading) != want {
			t.Errorf("%s over gRPC: got error %v, want the hint: %t", address, err, want)
		}
		_ = conn.Close()
		e.Close()
		if text := a.Want(false); strings.Contains(text, "port") == strings.HasPrefix(address, "unix:") {
			t.Errorf("%s: got the hint %q", address, text)
		}
	}
}
