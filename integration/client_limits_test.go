package integration

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// shorter is less than the default of every time limit, which is at least 20 s.
const shorter = 15 * time.Second

const bytesConfig = `
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ -1 ] } ]
`

// largeModel returns as many MiB as its input specifies.
const largeModel = `
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(r.inputs()[0].as_numpy()[0]) << 20 for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros(n, np.uint8))]) for n in sizes]
`

// countsModel returns the number of its instances that execute at the same time.
const countsModel = `
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        mark = os.path.join(%[1]q, str(os.getpid()))
        open(mark, "w").close()
        time.sleep(0.05)
        inside = np.array([len(os.listdir(%[1]q))], np.uint8)
        os.remove(mark)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", inside)]) for _ in requests]
`

// endlessModel sends responses until its client disconnects. It takes some seconds to fill the
// client's window.
const endlessModel = `
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            open(os.path.join(%[1]q, "begun"), "w").close()
            while not request.is_cancelled():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros(100_000, np.uint8))]))
                time.sleep(0.05)
            open(os.path.join(%[1]q, "left"), "w").close()
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// startForClients starts a server. The model "endless" writes marker files to the returned
// directory.
func startForClients(t *testing.T, flags ...string) (s *runningServer, marks string) {
	t.Helper()
	marks = t.TempDir()
	return start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"large/config.pbtxt": bytesConfig, "large/1/model.py": largeModel,
		"counts/config.pbtxt": bytesConfig + "instance_group [ { kind: KIND_CPU count: 4 } ]", "counts/1/model.py": fmt.Sprintf(countsModel, t.TempDir()),
		"endless/config.pbtxt": bytesConfig + "model_transaction_policy { decoupled: true }", "endless/1/model.py": fmt.Sprintf(endlessModel, marks),
	}), flags...), marks
}

// rawConn is a TCP connection without an HTTP client.
type rawConn struct {
	net.Conn
	*bufio.Reader
	t *testing.T
}

func (c *rawConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func dialRaw(t *testing.T, port int) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(shorter))
	return &rawConn{c, bufio.NewReader(c), t}
}

func (c *rawConn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// reply reads an HTTP reply.
func (c *rawConn) reply() (status int, text string, closes bool) {
	c.t.Helper()
	r, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return r.StatusCode, string(b), r.Close
}

// ends reads until the server closes the connection, and fails if it stays open.
func (c *rawConn) ends() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.Reader); os.IsTimeout(err) {
		c.t.Error("the connection is still open")
	}
}

// endsUnread waits, without reading, until the server has closed the connection, which makes a
// write fail.
func (c *rawConn) endsUnread(text string) {
	c.t.Helper()
	if !testkit.Within(shorter, func() bool {
		_, err := io.WriteString(c.Conn, text)
		return err != nil && !os.IsTimeout(err)
	}) {
		c.t.Error("the connection is still open")
	}
}

// TestFlagsSetTheLimitsOfHTTPClients checks each limit that a flag sets for HTTP clients.
// The limit on connections has its own test, because closed connections count until the server
// notices. Time limits use a separate server, because any client could reach them on a slow
// machine.
func TestFlagsSetTheLimitsOfHTTPClients(t *testing.T) {
	testkit.Story(t)
	s, _ := startForClients(t, "--http-max-header-size=1000", "--http-max-chunks=5", "--http-max-discard-size=2000", "--http-max-input-size=5000",
		"--http-body-bytes-per-second=10000000", "--http-body-grace-seconds=1", "--allow-client-shm=true", "--client-shm-max-regions=1")
	hurried, _ := startForClients(t, "--http-header-timeout-seconds=1", "--http-write-timeout-seconds=1", "--http-idle-timeout-seconds=1", "--grpc-write-timeout-seconds=1")
	const post = "POST /v2/models/%s/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s"
	one := `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1],"data":[1]}]}`
	binary := `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[900000],"parameters":{"binary_data_size":900000}}]}`
	for _, tt := range []struct {
		name, request, want string
		status              int // 0: the connection closes without a reply
		closes              bool
	}{
		{"header size", "GET /v2/health/live HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("a", 1000) + "\r\n\r\n", "", 431, true},
		{"chunks", "POST /v2/models/large/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 6) + "0\r\n\r\n", "chunk", 400, true},
		{"five chunks", "POST /v2/models/large/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 5) + "0\r\n\r\n", "JSON", 500, false},
		{"input size", fmt.Sprintf(post, "large", 5001, one+strings.Repeat(" ", 5001-len(one))), "5000 bytes", 400, true},
		{"little to discard", fmt.Sprintf(post, "none", 1999, strings.Repeat(" ", 1999)), "unknown model", 404, false},
		{"much to discard", fmt.Sprintf(post, "none", 100_000, strings.Repeat(" ", 100_000)), "unknown model", 404, true},
		{"header time", "GET /v2/hea", "", 0, true},
		{"idle time", "", "", 0, true},
		{"body time", fmt.Sprintf("POST /v2/models/large/infer HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s",
			len(binary), len(binary)+900_000, binary) + strings.Repeat("x", 500_000), "request body came too slowly", 400, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.status == 0 {
				c := dialRaw(t, hurried.http)
				_, _ = io.WriteString(c.Conn, tt.request)
				c.ends()
				return
			}
			c := dialRaw(t, s.http)
			c.send(tt.request)
			status, text, closes := c.reply()
			if status != tt.status || !strings.Contains(text, tt.want) || closes != tt.closes {
				t.Errorf("got %d %q, closes %v; want %d, %q, %v", status, text, closes, tt.status, tt.want, tt.closes)
			}
			_ = c.Close()
		})
	}
	t.Run("write time", func(t *testing.T) {
		c := dialRaw(t, hurried.http)
		of := strings.Replace(one, `"data":[1]`, `"data":[64]`, 1)
		of = strings.Replace(of, `{"inputs"`, `{"parameters":{"binary_data_output":true},"inputs"`, 1)
		c.send(fmt.Sprintf(post, "large", len(of), of))
		c.endsUnread("G")
	})
	t.Run("write time of gRPC", func(t *testing.T) { // also ends the streams of the other tests
		c := dialRaw(t, hurried.grpc)
		c.begin()
		c.send(call(1, "ModelStreamInfer") + message(t, 1, ofBytes("large", 2)))
		c.endsUnread(frame(frameWindow, 0, 0, "\x00\x00\x00\x01"))
	})
	t.Run("regions", func(t *testing.T) {
		path := filepath.Join("/dev/shm", fmt.Sprintf("nereid-test-%d", os.Getpid()))
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		body := `{"key":"/` + filepath.Base(path) + `","offset":0,"byte_size":100}`
		if status, text := s.request("POST", "/v2/systemsharedmemory/region/first/register", body); status != http.StatusOK {
			t.Fatalf("the first region: status %d: %s", status, text)
		}
		status, text := s.request("POST", "/v2/systemsharedmemory/region/second/register", body)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "--client-shm-max-regions") {
			t.Errorf("a second region: status %d: %s", status, text)
		}
	})
}

// TestConnectionsAreLimited checks that a connection beyond --http-max-connections is rejected.
func TestConnectionsAreLimited(t *testing.T) {
	s, _ := startForClients(t, "--http-max-connections=2")
	for range 2 { // both connections have just received a reply
		c := dialRaw(t, s.http)
		testkit.Eventually(t, startLimit, func() bool { // wait until the previous connections are gone
			_, _ = io.WriteString(c.Conn, "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n") // the server may have closed a rejected connection
			r, err := http.ReadResponse(c.Reader, nil)                                       //nolint:bodyclose // it has none
			if err != nil || r.StatusCode != http.StatusOK {
				c = dialRaw(t, s.http)
				return false
			}
			return true
		})
	}
	c := dialRaw(t, s.http)
	text, err := io.ReadAll(c.Reader)
	if os.IsTimeout(err) || len(text) > 0 && !strings.HasPrefix(string(text), "HTTP/1.1 503") {
		t.Errorf("a third connection got %q and %v", text, err)
	}
}

// These are the HTTP/2 frames and error codes that the tests use.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway, frameWindow = 0, 1, 3, 4, 7, 8
	endHeaders                                                                   = 4
	refusedStream, flowControlError                                              = 7, 3
)

func frame(kind, flags byte, stream uint32, payload string) string {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

// begin starts HTTP/2. The default windows allow the server to send 64 KiB.
func (c *rawConn) begin() {
	c.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(frameSettings, 0, 0, ""))
}

// call returns the HEADERS frame of an RPC.
func call(stream uint32, method string) string {
	path := "/inference.GRPCInferenceService/" + method
	return frame(frameHeaders, endHeaders, stream, "\x83\x86\x04"+string(rune(len(path)))+path+"\x01\x01h\x0f\x10\x10application/grpc\x00\x02te\x08trailers")
}

// message returns a message of an RPC in one DATA frame.
func message(t *testing.T, stream uint32, m proto.Message) string {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return frame(frameData, 0, stream, string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))))+string(b))
}

// next reads frames until it finds one of the given kinds.
func (c *rawConn) next(kinds ...byte) (kind byte, payload []byte) {
	c.t.Helper()
	for {
		var head [9]byte
		if _, err := io.ReadFull(c.Reader, head[:]); err != nil {
			c.t.Fatal(err)
		}
		payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c.Reader, payload); err != nil {
			c.t.Fatal(err)
		}
		for _, kind := range kinds {
			if head[3] == kind {
				return kind, payload
			}
		}
	}
}

func ofBytes(model string, data ...byte) *kserve.ModelInferRequest {
	return &kserve.ModelInferRequest{
		ModelName:        model,
		Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "UINT8", Shape: []int64{int64(len(data))}}},
		RawInputContents: [][]byte{data},
	}
}

func dialGRPC(t *testing.T, s *runningServer, options ...grpc.DialOption) grpcservice.GRPCInferenceServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", s.grpc), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpcservice.NewGRPCInferenceServiceClient(conn)
}

// stalls checks that the server ends an unread stream within limit.
func stalls(ctx context.Context, t *testing.T, s *runningServer, marks string, limit time.Duration) {
	stream, err := dialGRPC(t, s, grpc.WithStaticStreamWindowSize(1<<16)).ModelStreamInfer(ctx)
	if err == nil {
		err = stream.Send(ofBytes("endless", 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, limit, func() bool { return exists(filepath.Join(marks, "left")) })
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "the client does not read the responses of its stream" {
		t.Errorf("the stream ends with %v", err)
	}
}

// TestFlagsSetTheLimitsOfGRPCStreams checks limits that would interfere with those of
// TestFlagsSetTheLimitsOfGRPCClients.
func TestFlagsSetTheLimitsOfGRPCStreams(t *testing.T) {
	const window = 100_000
	s, marks := startForClients(t, "--grpc-max-stream-byte-size=2000000", "--grpc-max-stream-requests=1", "--grpc-max-connections=2",
		"--grpc-stream-stall-timeout-seconds=3600", fmt.Sprintf("--grpc-stream-window-size=%d", window))
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	stalls(ctx, t, s, marks, startLimit)
	_ = os.Remove(filepath.Join(marks, "begun"))

	c := dialRaw(t, s.grpc)
	c.begin()
	c.send(call(1, "ModelStreamInfer") + message(t, 1, ofBytes("endless", 1)))
	testkit.Eventually(t, startLimit, func() bool { return exists(filepath.Join(marks, "begun")) })
	_ = c.SetDeadline(time.Now().Add(startLimit))
	one := message(t, 1, ofBytes("large", make([]byte, 10_000)...)) // the server reads the second request only after the first has ended
	for range window/len(one) + 2 {
		c.send(one)
	}
	if kind, payload := c.next(frameReset, frameGoAway); kind != frameReset || binary.BigEndian.Uint32(payload) != flowControlError {
		t.Errorf("more than the window: got frame %d %q", kind, payload)
	}

	// Both connections have just received a reply.
	full := 0
	for range 3 {
		c := dialRaw(t, s.grpc)
		c.begin()
		if _, err := io.ReadFull(c.Reader, make([]byte, 9)); err != nil {
			full++
		}
	}
	if full == 0 {
		t.Error("three connections are kept")
	}
}

// TestFlagsSetTheLimitsOfGRPCClients checks each limit that a flag sets for gRPC clients.
// Time limits use separate servers, because any client could reach them on a slow machine.
func TestFlagsSetTheLimitsOfGRPCClients(t *testing.T) {
	testkit.Story(t)
	s, _ := startForClients(t, "--grpc-max-message-size=50000", "--grpc-max-header-size=2000", "--grpc-max-calls=2", "--grpc-max-stream-requests=2")
	hurried, _ := startForClients(t, "--grpc-read-timeout-seconds=1", "--grpc-handshake-timeout-seconds=1")
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	client := dialGRPC(t, s)
	_, err := client.ModelInfer(ctx, ofBytes("large", make([]byte, 50_000)...))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(status.Convert(err).Message(), "50000") {
		t.Errorf("a message of more than 50000 bytes: %v", err)
	}
	_, err = client.ServerLive(metadata.AppendToOutgoingContext(ctx, "a", strings.Repeat("a", 2000)), &kserve.ServerLiveRequest{})
	if err == nil {
		t.Error("headers of more than 2000 bytes are taken")
	}
	t.Run("stream requests", func(t *testing.T) {
		stream, err := client.ModelStreamInfer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			if err := stream.Send(ofBytes("counts", 1)); err != nil {
				t.Fatal(err)
			}
		}
		_ = stream.CloseSend()
		most := byte(0)
		for range 12 {
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, r.GetInferResponse().GetRawOutputContents()[0][0])
		}
		if most != 2 {
			t.Errorf("%d requests of a stream are executed at once, want 2", most)
		}
	})
	t.Run("stall time", func(t *testing.T) {
		s, marks := startForClients(t, "--grpc-stream-stall-timeout-seconds=1")
		stalls(ctx, t, s, marks, shorter)
	})
	t.Run("calls", func(t *testing.T) {
		c := dialRaw(t, s.grpc)
		c.begin()
		for stream := uint32(1); stream <= 5; stream += 2 {
			c.send(call(stream, "ModelStreamInfer"))
		}
		if kind, payload := c.next(frameReset, frameGoAway); kind != frameReset || binary.BigEndian.Uint32(payload) != refusedStream {
			t.Errorf("a third call: got frame %d %q", kind, payload)
		}
	})
	t.Run("handshake time", func(t *testing.T) { dialRaw(t, hurried.grpc).ends() })
	t.Run("read time", func(t *testing.T) {
		c := dialRaw(t, hurried.grpc)
		c.begin()
		c.send(call(1, "ModelInfer") + frame(frameData, 0, 1, "\x00\x00\x00\x10\x00half"))
		c.ends()
	})
}
