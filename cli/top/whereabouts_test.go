package top

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
)

// TestMetricsAreFound checks that metrics are read from the address that the server names, or from
// a guessed address with a note. It is internal because notes name only guessed addresses.
func TestMetricsAreFound(t *testing.T) {
	metrics := NewFakeServer(t)
	metrics.Reply("GET /metrics", "nv_cpu_utilization 0.25\n")
	port := mustParse(t, metrics.URL).Port()
	look := func(f *FakeServer, server string) (*poller, *View) {
		t.Helper()
		f.Reply("POST /v2/repository/index", "[]")
		f.Reply("GET /v2/models/stats", `{"model_stats":[]}`)
		o, err := parse(command.Flags("top"), []string{"--url", server})
		if err != nil {
			t.Fatal(err)
		}
		p := newPoller(o)
		t.Cleanup(p.close)
		return p, p.poll(t.Context())
	}
	says := func(v *View, text string) bool {
		return slices.ContainsFunc(v.Notes, func(note string) bool { return strings.Contains(note, text) })
	}

	named := NewFakeServer(t)
	named.Reply("GET /docs", "Nereid: KServe v2\n\ngRPC: port 8001\nMetrics for Prometheus: port "+port+", /metrics\n")
	p, v := look(named, named.URL)
	if !is(v.Server.MachineCPU, 0.25) || p.where.url.Host != "127.0.0.1:"+port || says(v, "guess") {
		t.Errorf("a port that the server names: got %v, notes %q", p.where, v.Notes)
	}
	named.Reply("GET /docs", "Nereid: KServe v2\n\nMetrics for Prometheus: port 1, /metrics\n")
	p.poll(t.Context())
	if p.where.url.Host != "127.0.0.1:"+port {
		t.Errorf("a place that was settled: got %v", p.where)
	}

	none := NewFakeServer(t)
	none.Reply("GET /docs", "Nereid: KServe v2\n\ngRPC: port 8001\n")
	if p, v := look(none, none.URL); p.where.url != nil || !says(v, "no metrics: the server names no port for them (--allow-metrics=false); give one with --metrics-url") || !says(v, "no status: ") {
		t.Errorf("a server without metrics: got %v, notes %q", p.where, v.Notes)
	}

	silent := NewFakeServer(t)
	own, _ := strconv.Atoi(mustParse(t, silent.URL).Port())
	want := fmt.Sprintf("127.0.0.1:%d", own+2)
	if p, v := look(silent, silent.URL); p.where.url.Host != want || !says(v, "the server does not name its metrics endpoint, and "+want+" is a guess: set it with --metrics-url") {
		t.Errorf("a server that names no port: got %v, notes %q", p.where, v.Notes)
	}
	read := whereabouts{url: mustParse(t, "http://h:9002"), guess: true}
	if got, want := read.note(true), "metrics come from h:9002: the server does not name its metrics endpoint, and that is a guess: set it with --metrics-url"; got != want {
		t.Errorf("metrics by a guess: got %q, want %q", got, want)
	}

	for server, want := range map[string]string{"http://127.0.0.1:1": "127.0.0.1:3", "https://[::1]:1": "[::1]:3"} {
		if p, v := look(NewFakeServer(t), server); p.where.url.Host != want || p.where.settled || v.Lost == "" {
			t.Errorf("%s, where nothing answers: got %v, want %s, not settled", server, p.where, want)
		}
	}
	for server, want := range map[string]whereabouts{
		"http://localhost:8000": {url: mustParse(t, "http://localhost:8002")},
		"http://localhost":      {url: mustParse(t, "http://localhost:8002")},
		"https://localhost":     {url: mustParse(t, "http://localhost:8002"), guess: true},
	} {
		ended, end := context.WithCancel(t.Context())
		end()
		o, err := parse(command.Flags("top"), []string{"--url", server})
		if err != nil {
			t.Fatal(err)
		}
		p := newPoller(o)
		if p.locate(ended); *p.where.url != *want.url || p.where.guess != want.guess || p.where.settled {
			t.Errorf("%s: got %v, want %v", server, p.where, want)
		}
		p.close()
	}
}
