package top

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/server/status"
)

// FakeServer replies by method and path. Anything else gets 404 without a body.
type FakeServer struct {
	*httptest.Server
	mu      sync.Mutex
	replies map[string]string
	asked   []string // method, path and body of each request other than GET
}

func NewFakeServer(t *testing.T) *FakeServer {
	f := &FakeServer{replies: map[string]string{"GET /v2": `{"name":"triton","version":"2.51.0"}`}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/index") {
			f.asked = append(f.asked, r.Method+" "+r.URL.Path+" "+string(body))
		}
		reply, known := f.replies[r.Method+" "+r.URL.Path]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if reply == "close" {
			panic(http.ErrAbortHandler)
		}
		if text, refused := strings.CutPrefix(reply, "400 "); refused {
			w.WriteHeader(http.StatusBadRequest)
			reply = text
		}
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(f.Close)
	return f
}

// Reply sets the reply to a method and path.
func (f *FakeServer) Reply(to, with string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[to] = with
}

// Tell sets the server's status.
func (f *FakeServer) Tell(t *testing.T, s *status.Snapshot) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	f.Reply("GET /status", string(text))
}
