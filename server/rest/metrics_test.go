package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
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
	m, err := NewMetrics(Config{Address: "127.0.0.1"}, page, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	s := &testServer{addr: m.Addr().String()}
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/metrics", "200 text/plain; charset=utf-8 nv_x 1\n"},
		{"GET", "/metrics/?x", "200 text/plain; charset=utf-8 nv_x 1\n"},
		{"GET", "/", "200 text/plain "},
		{"GET", "/status", "200 text/plain "}, // it is switched off
		{"GET", "/metrics/x", "200 text/plain "},
		{"POST", "/metrics", "405 text/plain " + errorBody("Method Not Allowed")},
		{"PUT", "/", "405 text/plain " + errorBody("Method Not Allowed")},
	} {
		if got := s.do(t, tt.method, tt.path, "", "Accept: application/openmetrics-text", "Accept-Encoding: gzip").String(); got != tt.want {
			t.Errorf("%s %s: got %q, want %q", tt.method, tt.path, got, tt.want)
		}
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
	m, err := NewMetrics(Config{Address: "127.0.0.1"}, page, keeper, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	s := &testServer{addr: m.Addr().String()}
	for _, tt := range []struct {
		query         string
		lines         int
		first, newest uint64
	}{{"", 100, 51, 150}, {"?lines=3", 3, 148, 150}, {"?after=149", 1, 150, 150}, {"?lines=1000&after=140", 10, 141, 150}, {"?after=150", 0, 0, 150}} {
		reply := s.do(t, "GET", "/status"+tt.query, "")
		var got status.Snapshot
		if err := json.Unmarshal([]byte(reply.body), &got); err != nil {
			t.Fatalf("%s: %v in %s", tt.query, err, reply)
		}
		if got.Server.Name != "one" || len(got.Log) != tt.lines || got.Last != tt.newest || tt.lines > 0 && (got.Log[0].Sequence != tt.first || len(got.Errors) == 0) {
			t.Errorf("/status%s: got %d lines and %d errors up to %d of %q, want %d lines from %d to %d", tt.query, len(got.Log), len(got.Errors), got.Last, got.Server.Name, tt.lines, tt.first, tt.newest)
		}
	}
	for _, query := range []string{"lines=x", "lines=-1", "since=3", "%zz", "after=99999999999999999999"} {
		if got := s.do(t, "GET", "/status?"+query, ""); got.status != http.StatusBadRequest {
			t.Errorf("/status?%s: got %s, want it refused", query, got)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	<-kept
}
