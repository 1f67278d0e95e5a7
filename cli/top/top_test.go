package top_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/top"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/status"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestFilterHoldsForAllThatIsShownOnce checks that --filter applies to models, errors and log lines
// with --once and --json.
func TestFilterHoldsForAllThatIsShownOnce(t *testing.T) {
	f := top.NewFakeServer(t)
	at := time.Now()
	f.Tell(t, &status.Snapshot{
		At: at, Versions: []status.Version{{Model: "greeter", Version: 1, State: "READY"}, {Model: "other", Version: 1, State: "READY"}},
		Errors: []status.Line{{Sequence: 1, Level: "error", Text: "failed to load 'Greeter'"}, {Sequence: 2, Level: "error", Text: "failed to load 'other'"}},
		Log:    []status.Line{{Sequence: 1, Level: "error", Text: "failed to load 'Greeter'"}, {Sequence: 2, Level: "error", Text: "failed to load 'other'"}}, Last: 2,
	})
	f.Reply("POST /v2/repository/index", `[{"name":"greeter","version":"1","state":"READY"},{"name":"other","version":"1","state":"READY"}]`)
	for _, how := range []string{"--once", "--json"} {
		var stdout, stderr bytes.Buffer
		if code := top.Run([]string{how, "--filter", "greet", "--url", f.URL, "--metrics-url", f.URL}, &stdout, &stderr); code != 0 {
			t.Errorf("%s: got status %d and %s", how, code, stderr.String())
		}
		if text := stdout.String(); !strings.Contains(text, "greeter") || !strings.Contains(text, "failed to load 'Greeter'") || strings.Contains(text, "other") {
			t.Errorf("%s: got %s, want greeter alone", how, text)
		}
	}
}

// TestMistakesOfTheCommandLine checks the errors for invalid command lines, with status 2, and for
// an unreachable server, with status 1.
func TestMistakesOfTheCommandLine(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--url", "ftp://x"}, 2, `--url is "ftp://x", want host:port, unix:<path>, or a URL such as https://host:8443`},
		{[]string{"--sort", "speed"}, 2, `--sort is "speed", want model, version,`},
		{[]string{"add_sub"}, 2, `unexpected argument "add_sub"`},
		{[]string{"--interval", "1ms"}, 2, "--interval is 1ms, want at least 100ms"},
		{[]string{"--header", "x"}, 2, `got "x", want NAME:VALUE`},
		{[]string{"--once", "--url", "http://127.0.0.1:1", "--metrics-url", "http://127.0.0.1:1"}, 1, "no server answers at http://127.0.0.1:1: connect: connection refused"},
		{[]string{"--json", "--url", "127.0.0.1:1"}, 1, "no server answers"},
	} {
		var stdout, stderr bytes.Buffer
		if status := top.Run(c.args, &stdout, &stderr); status != c.status || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", c.args, status, stderr.String(), stdout.String(), c.status, c.want)
		}
	}
}

// TestUnixSocketOfTheServer polls a server at a Unix socket, whose metrics have a port.
func TestUnixSocketOfTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "http")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	metrics := top.NewFakeServer(t)
	metrics.Reply("GET /metrics", "nv_cpu_utilization 0.25\n")
	f := top.NewFakeServer(t)
	f.Reply("POST /v2/repository/index", `[{"name":"m","version":"1","state":"READY"}]`)
	f.Reply("GET /docs", "Nereid: KServe v2\n\nMetrics for Prometheus: port "+metrics.URL[strings.LastIndex(metrics.URL, ":")+1:]+", /metrics\n")
	local := &httptest.Server{Listener: listener, Config: &http.Server{Handler: f.Config.Handler}}
	local.Start()
	defer local.Close()
	var stdout, stderr bytes.Buffer
	if code := top.Run([]string{"--json", "--interval", "100ms", "--url", "unix:" + path}, &stdout, &stderr); code != 0 {
		t.Fatalf("got status %d and %s", code, &stderr)
	}
	var v top.View
	if err := json.Unmarshal(stdout.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if v.URL != "unix:"+path || len(v.Models) != 1 || v.Models[0].State != "READY" || v.Server.MachineCPU == nil || *v.Server.MachineCPU != 0.25 {
		t.Errorf("got %s, want the model and the metrics", &stdout)
	}
}
