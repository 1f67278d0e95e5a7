package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/servertest"
)

// fakeSocket is a client that has sent all its input, and reads everything.
type fakeSocket struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (s *fakeSocket) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *fakeSocket) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *fakeSocket) Close() error                     { return nil }
func (s *fakeSocket) SetReadDeadline(time.Time) error  { return nil }
func (s *fakeSocket) SetWriteDeadline(time.Time) error { return nil }

// errorLog fails a test when an error is logged.
type errorLog struct{ t testing.TB }

func (l errorLog) Write(p []byte) (int, error) {
	l.t.Errorf("logged: %s", p)
	return len(p), nil
}

// serveBytes serves a client's input and returns its output. No handler may panic, each reply must
// be valid, and all memory must be released.
func serveBytes(t testing.TB, cfg Config, input []byte) (replies int) {
	t.Helper()
	blocks := &fakeBlocks{Blocks: servertest.Blocks{Account: budget.New(budget.Config{Limit: 64 << 20})}}
	h, err := New(cfg, server.Parts{Core: servertest.NewCore(), Allocate: blocks.Allocate, Open: blocks.open, Memory: blocks.Account, Logging: &fakeLog{}},
		zerolog.New(errorLog{t}).Level(zerolog.ErrorLevel))
	if err != nil {
		t.Fatal(err)
	}
	socket := &fakeSocket{in: bytes.NewReader(input)}
	h.conns.ServeConn(context.Background(), socket)
	if n := blocks.Lent.Load(); n != 0 {
		t.Errorf("%d blocks have not been released", n)
	}
	if n := blocks.Account.Total(); n != 0 {
		t.Errorf("%d bytes are still charged to the account", n)
	}
	for r := bufio.NewReader(&socket.out); ; {
		if _, err := r.Peek(1); err != nil {
			return replies
		}
		reply, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("a reply is malformed: %v", err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil && !(errors.Is(err, io.ErrUnexpectedEOF) && bytes.Contains(input, []byte("HEAD "))) {
			t.Fatalf("the body of a reply is malformed: %v", err)
		}
		if reply.StatusCode >= 400 && !bytes.HasPrefix(body, []byte(`{"error":`)) && !bytes.Contains(input, []byte("HEAD ")) {
			t.Fatalf("reply %d has the body %q, want an error", reply.StatusCode, body)
		}
		replies++
	}
}

// FuzzConnection sends arbitrary bytes.
func FuzzConnection(f *testing.F) {
	json := oneInput("INT32", "[2]", `"data":[1,2]`)
	for _, seed := range []string{
		liveRequest, liveRequest + liveRequest, "\r\n" + liveRequest + "x",
		text("POST", "/v2/models/id_int32/infer", json), text("POST", "/v2/models/id_int32/infer", json, "Expect: 100-continue", "Accept-Encoding: gzip"),
		"POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks(json, 9) + liveRequest,
		"POST /v2/repository/index HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}" + liveRequest,
		text("POST", "/v2/logging", `{"log_info":false}`), text("POST", "/v2/repository/models/m/load", `{"parameters":{"config":"{}","file:x":"eA=="}}`),
		string(binaryRequest("id_uint8", 5000)), text("GET", "http://a/v2/models/id%5ffp32?x=y", ""), text("GET", "/v2/models/batch/versions/1/stats", ""),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		serveBytes(t, Config{MaxInputBytes: 1 << 20, ForwardPattern: "^x"}, input)
	})
}

// FuzzInfer sends arbitrary bodies to the inference endpoint, in all the forms that a body can
// have.
func FuzzInfer(f *testing.F) {
	for _, head := range []string{
		oneInput("INT32", "[2]", `"data":[1,2]`), oneInput("FP64", "[2,1]", `"data":[[1.5e3],[NaN]]`), oneInput("BYTES", "[2]", `"data":["a\u00e9","\\"]`),
		oneInput("BOOL", "[0]", `"data":[]`), oneInput("UINT64", "[1]", `"data":[18446744073709551615]`),
		oneInput("UINT8", "[8]", `"parameters":{"binary_data_size":8}`), oneInput("BYTES", "[1]", `"parameters":{"binary_data_size":8}`),
		`{"id":"i","parameters":{"sequence_id":1,"sequence_start":true,"priority":1,"timeout":5,"x":-1.5},"inputs":[{"name":"INPUT0","datatype":"INT8",` +
			`"shape":[8],"parameters":{"binary_data_size":8}},{"name":"INPUT1","datatype":"FP32","shape":[1],"data":[1]}],` +
			`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}},{"name":"OUTPUT1","parameters":{"classification":3}}]}`,
		`{"inputs":[{"name":"INPUT2","datatype":"BYTES","shape":[1],"parameters":{"shared_memory_region":"r"}}],"outputs":[]}`,
		`{"inputs":[],"outputs":[{"name":"OUTPUT0","parameters":{"shared_memory_region":"r","binary_data":false}}]}`,
	} {
		for kind := range byte(8) {
			f.Add([]byte(head), "\x04\x00\x00\x00abcd", kind)
		}
	}
	f.Fuzz(func(t *testing.T, head []byte, data string, kind byte) {
		body := string(head) + data
		headers := []string{fmt.Sprintf("%s: %d", inference.HeaderLengthName, len(head))}
		if kind&1 != 0 {
			headers = append(headers, "Accept-Encoding: deflate")
		}
		if kind&4 != 0 { // large parts are in blocks
			body += strings.Repeat("\x00", inference.SmallBody)
		}
		model := "/v2/models/multi/infer"
		request := text("POST", model, body, headers...)
		if kind&2 != 0 {
			request = "POST " + model + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + headers[0] + "\r\n\r\n" + inChunks(body, 1+len(body)/3)
		}
		if replies := serveBytes(t, Config{MaxInputBytes: 1 << 20}, []byte(request+liveRequest)); replies != 2 {
			t.Fatalf("got %d replies, want 2", replies)
		}
	})
}
