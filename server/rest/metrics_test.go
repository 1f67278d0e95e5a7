package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/status"
)

func TestMetricsServeThePage(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text")
		if r.Header.Get("Accept") != "" || r.Header.Get("Accept-Encoding") != "" {
			w.WriteHeader(http.StatusNotAcceptable)
		}
		_, _ = w.Write([]byte("nv_x 1\n"))
	})
	m, err := rest.NewMetrics(rest.Config{Address: "127.0.0.1"}, budget.New(budget.Config{Limit: 64 << 20}), page, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	s := &TestServer{Addr: m.Addr().String()}
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/metrics", "200 text/plain; charset=utf-8 nv_x 1\n"},
		{"GET", "/metrics/?x", "200 text/plain; charset=utf-8 nv_x 1\n"},
		{"GET", "/", "200 text/plain "},
		{"GET", "/status", "200 text/plain "}, // off
		{"GET", "/metrics/x", "200 text/plain "},
		{"POST", "/metrics", "405 text/plain " + ErrorBody("Method Not Allowed")},
		{"PUT", "/", "405 text/plain " + ErrorBody("Method Not Allowed")},
	} {
		if got := s.Do(t, tt.method, tt.path, "", "Accept: application/openmetrics-text", "Accept-Encoding: gzip").String(); got != tt.want {
			t.Errorf("%s %s: got %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

// TestLongPagesAreSentPieceByPiece checks that a page of one write has a Content-Length, that a
// longer page is chunked, and that its handler stops when the client disconnects.
func TestLongPagesAreSentPieceByPiece(t *testing.T) {
	var most atomic.Int64       // pieces of a page
	left := make(chan error, 1) // receives the handler's error after its client has disconnected
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		for i := range most.Load() {
			piece := fmt.Appendf(nil, "piece %d %s\n", i, strings.Repeat("x", 64<<10))
			_, err := w.Write(piece)
			clear(piece) // it must not be kept
			if err != nil {
				left <- err
				return
			}
		}
	})
	m, err := rest.NewMetrics(rest.Config{Address: "127.0.0.1"}, budget.New(budget.Config{Limit: 64 << 20}), page, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func() *http.Response {
		t.Helper()
		response, err := client.Get("http://" + m.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	for _, pieces := range []int64{0, 1, 2, 5} {
		most.Store(pieces)
		response := get()
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusAccepted || int64(strings.Count(string(body), "xxx\n")) != pieces ||
			pieces > 0 && !strings.Contains(string(body), fmt.Sprintf("piece %d x", pieces-1)) {
			t.Errorf("a page of %d pieces: got %d bytes with status %d and error %v, want all of it", pieces, len(body), response.StatusCode, err)
		}
		if known := response.ContentLength >= 0; known != (pieces < 2) {
			t.Errorf("a page of %d pieces: got the length %d, want one below 2 pieces alone", pieces, response.ContentLength)
		}
	}
	most.Store(math.MaxInt64)
	_ = get().Body.Close()
	if err := <-left; !errors.Is(err, http1.ErrClientGone) {
		t.Errorf("the handler was told %v, want that its client has gone", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

func TestMetricsServeTheStatus(t *testing.T) {
	lines := &status.Log{}
	for i := range 150 {
		lines.Add(zerolog.ErrorLevel, time.Now(), []byte("a.go"), []byte("1"), fmt.Append(nil, "line ", i))
	}
	keeper := status.NewKeeper(status.Config{
		Server: func() status.Server { return status.Server{Name: "one"} }, Versions: func() []models.VersionStatus { return nil },
		Figures: func() []metrics.Figures { return nil }, Instances: func() []status.Instance { return nil }, Lines: lines,
	})
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		keeper.Run(ctx)
	}()
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	account := budget.New(budget.Config{Limit: 64 << 20})
	m, err := rest.NewMetrics(rest.Config{Address: "127.0.0.1", Hosts: []string{"gpu1.example.org"}}, account, page, keeper, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	s := &TestServer{Addr: m.Addr().String()}
	for _, tt := range []struct {
		query         string
		lines         int
		first, newest uint64
	}{{"", 100, 51, 150}, {"?lines=3", 3, 148, 150}, {"?after=149", 1, 150, 150}, {"?lines=1000&after=140", 10, 141, 150}, {"?after=150", 0, 0, 150}} {
		reply := s.Do(t, "GET", "/status"+tt.query, "")
		var got status.Snapshot
		if err := json.Unmarshal([]byte(reply.Body), &got); err != nil {
			t.Fatalf("%s: %v in %s", tt.query, err, reply)
		}
		if got.Server.Name != "one" || len(got.Log) != tt.lines || got.Last != tt.newest || tt.lines > 0 && (got.Log[0].Sequence != tt.first || len(got.Errors) == 0) {
			t.Errorf("/status%s: got %d lines and %d errors up to %d of %q, want %d lines from %d to %d", tt.query, len(got.Log), len(got.Errors), got.Last, got.Server.Name, tt.lines, tt.first, tt.newest)
		}
	}
	for _, tt := range []struct {
		host   string
		header string
		want   int
	}{
		{"localhost:8002", "", 200}, {"10.1.2.3:8002", "", 200}, {"gpu1.example.org:8002", "", 200},
		{"rebound.example.net:8002", "", 421}, {"localhost:8002", "Sec-Fetch-Site: cross-site\r\n", 403},
	} {
		c := s.Connect(t)
		c.Send("GET /status HTTP/1.1\r\nHost: " + tt.host + "\r\n" + tt.header + "\r\n")
		if got := c.Receive("GET"); got.Status != tt.want {
			t.Errorf("/status of host %s %s: got %.200s, want %d", tt.host, tt.header, got, tt.want)
		}
		_ = c.Close()
	}
	for range 16 {
		lines.Add(zerolog.InfoLevel, time.Now(), []byte("a.go"), []byte("1"), make([]byte, 60<<10))
	}
	full := account.Most(budget.Replies)
	account.Must(budget.Replies, full)
	taken := testkit.Allocated(func() {
		if got := s.Do(t, "GET", "/status?lines=1000", ""); got.Status != http.StatusServiceUnavailable {
			t.Errorf("a status without memory: got %.200s, want 503", got)
		}
	})
	if taken > 512<<10 {
		t.Errorf("a status without memory takes %d bytes, want no copy of the log", taken)
	}
	account.Give(budget.Replies, full)
	for _, query := range []string{"lines=x", "lines=-1", "since=3", "%zz", "after=99999999999999999999"} {
		if got := s.Do(t, "GET", "/status?"+query, ""); got.Status != http.StatusBadRequest {
			t.Errorf("/status?%s: got %s, want it refused", query, got)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	<-kept
}
