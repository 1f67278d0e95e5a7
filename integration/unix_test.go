package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const unixClient = `
import sys
import numpy
import tritonclient.grpc as client

with client.InferenceServerClient(sys.argv[1]) as server:
    tensor = client.InferInput("INPUT", [3], "UINT8")
    tensor.set_data_from_numpy(numpy.array([1, 2, 3], dtype=numpy.uint8))
    print(server.infer("plus", [tensor]).as_numpy("OUTPUT").tolist())
`

// TestUnixSockets checks that HTTP and gRPC can be served on Unix sockets, and that metrics then
// stay on this machine.
func TestUnixSockets(t *testing.T) {
	directory := t.TempDir()
	httpPath, grpcPath := filepath.Join(directory, "http.sock"), filepath.Join(directory, "grpc.sock")
	s := launch(t, testkit.Python(t).Path, plusOneModel(t), "--http-address=unix:"+httpPath, "--grpc-address=unix://"+grpcPath, "--unix-socket-mode=0600")
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", httpPath)
	}}}
	defer local.CloseIdleConnections()
	s.until("ready", func() bool {
		reply, err := local.Get("http://localhost/v2/health/ready")
		if err != nil {
			return false
		}
		_ = reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	page, err := http.NewRequest("GET", "http://localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	page.Header.Set("Accept", "*/*")
	reply, err := local.Do(page)
	if err != nil {
		t.Fatal(err)
	}
	index, _ := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	if want := "gRPC: unix://" + grpcPath + "\n"; !strings.Contains(string(index), want) {
		t.Errorf("the index page has no %q:\n%s", want, index)
	}
	for _, size := range []int{3, 3 << 20} {
		body, header := binaryBody(size)
		r, err := http.NewRequest("POST", "http://localhost/v2/models/plus/infer", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range header {
			r.Header.Set(name, value)
		}
		reply, err := local.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || reply.StatusCode != http.StatusOK || !strings.HasSuffix(string(text), strings.Repeat("\x01", size)) {
			t.Errorf("HTTP, %d bytes: status %d, %v", size, reply.StatusCode, err)
		}
	}
	output, err := exec.Command(clientPython(t), "-c", unixClient, "unix:"+grpcPath).CombinedOutput()
	if err != nil || string(output) != "[2, 3, 4]\n" {
		t.Errorf("gRPC: got %s, %v", output, err)
	}
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"health", "--ready", "unix:" + httpPath},
		{"bench", "plus", "--duration=100ms", "--warm-up=0s", "--url=unix:" + httpPath},
		{"bench", "plus", "--duration=100ms", "--warm-up=0s", "--url=unix:" + grpcPath, "--protocol=grpc"},
		{"top", "--once", "--url=unix:" + httpPath},
	} {
		if output, err := exec.Command(binary, arguments...).CombinedOutput(); err != nil {
			t.Errorf("nereid %q: %s, %v", arguments, output, err)
		}
	}
	s.figure("nereid_memory_limit_bytes") // of 127.0.0.1
	if !s.prints(fmt.Sprintf("Started Metrics Service at 127.0.0.1:%d", s.metrics)) {
		t.Error("metrics are not on this machine alone")
	}
	for _, path := range []string{httpPath, grpcPath} {
		if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: got %v, %v", path, info, err)
		}
	}
	s.stop()
	for _, path := range []string{httpPath, grpcPath} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there after the server has ended: %v", path, err)
		}
	}
}
