package rest

import (
	"context"
	"net/http"
	"testing"

	"github.com/rs/zerolog"
)

func TestMetricsServeThePage(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text")
		if r.Header.Get("Accept") != "" || r.Header.Get("Accept-Encoding") != "" {
			w.WriteHeader(http.StatusNotAcceptable)
		}
		_, _ = w.Write([]byte("nv_x 1\n"))
	})
	m, err := NewMetrics(Config{Address: "127.0.0.1"}, page, zerolog.Nop())
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
