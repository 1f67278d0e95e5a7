package top

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/server/status"
)

// The tests of this file are internal because only a session in a terminal polls repeatedly and
// changes models.

func mustParse(t *testing.T, text string) *client.Address {
	t.Helper()
	u, err := client.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (f *FakeServer) poller(t *testing.T) *poller {
	t.Helper()
	flags := command.Flags("top")
	o, err := parse(flags, []string{"--url", f.URL, "--metrics-url", f.URL, "--header", "key: value"})
	if err != nil {
		t.Fatal(err)
	}
	p := newPoller(o)
	t.Cleanup(p.close)
	return p
}

// row returns the only row of a model.
func (v *View) row(t *testing.T, model string) *Row {
	t.Helper()
	at := slices.IndexFunc(v.Models, func(r Row) bool { return r.Model == model })
	if at < 0 {
		t.Fatalf("the view has no model %s: %+v", model, v)
	}
	return &v.Models[at]
}

func is(value *float64, want float64) bool {
	return value != nil && *value > want-1e-6 && *value < want+1e-6
}

// snapshotOf returns the status of a server with one model.
func snapshotOf(at, started time.Time, succeeded, failed int64, cpu float64, lines ...string) *status.Snapshot {
	s := &status.Snapshot{
		At: at, Server: status.Server{Name: "triton", PID: 1, Started: started, Control: "explicit", CPU: cpu},
		Versions: []status.Version{{
			Model: "m", Version: 2, State: "READY", Queue: 3, InFlight: 4, Groups: []status.Group{{Name: "m_0", Kind: "CPU", Count: 1}},
			Counters: status.Counters{Succeeded: succeeded, Failed: map[string]int64{"OTHER": failed}, Inferences: 2 * succeeded, Executions: succeeded},
			Latency:  &status.Latency{Request: status.Times{Sum: float64(succeeded) / 100}},
			Recent: []status.Period{
				{Seconds: 60, Covered: 30, Succeeded: 90, Request: &status.Percentiles{P50: 0.001, P99: 0.004}},
				{Seconds: 300, Covered: 30, Request: &status.Percentiles{P50: 0.002, P99: 0.005}},
				{Seconds: 900, Covered: 30},
			},
			Instances: []status.Instance{{Name: "m_0_0", State: "busy", PID: 7, Resident: 1 << 20, CPU: cpu, Losses: 2}, {Name: "m_0_1", State: "dead", Losses: 1, LastLoss: &status.Loss{Cause: "exit", Text: "gone\nfor good"}}},
		}},
	}
	for i, text := range lines {
		s.Log = append(s.Log, status.Line{Sequence: uint64(i + 1), Text: text, Level: "info"})
		s.Last = uint64(i + 1)
	}
	return s
}

func TestPollerFollowsTheStatus(t *testing.T) {
	f := NewFakeServer(t)
	f.Reply("POST /v2/repository/index", `[{"name":"m","version":"2","state":"READY"},{"name":"other"},{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"no"}]`)
	f.Reply("GET /v2/models/stats", `{"model_stats":[]}`)
	f.Reply("GET /metrics", "nv_cpu_utilization 0.25\n")
	p := f.poller(t)
	begin := time.Unix(1_000_000, 0)
	f.Tell(t, snapshotOf(begin, begin, 100, 0, 5, "one"))
	v := p.poll(t.Context())
	m := v.row(t, "m")
	if !is(m.Rate, 3) || !is(m.Queue, 3) || !is(m.InFlight, 4) || !is(m.Ready, 1) || !is(m.Total, 2) || !is(m.Losses, 3) || !is(m.P99, 0.004) || m.Version != "2" {
		t.Errorf("at first: got %+v, want the rate of the last minute", m)
	}
	if len(v.Models) != 3 || v.row(t, "other").State != "" || v.row(t, "bad").Reason != "no" || !is(v.Server.MachineCPU, 0.25) || len(v.Notes) != 0 {
		t.Errorf("got %+v, want the models of the index too, and no notes", v)
	}

	f.Tell(t, snapshotOf(begin.Add(2*time.Second), begin, 150, 10, 6, "one", "two"))
	v = p.poll(t.Context())
	m = v.row(t, "m")
	if !is(m.Rate, 25) || !is(m.Errors, 5) || !is(m.Batch, 2) || !is(m.Mean, 0.01) || !is(m.Instances[0].CPUCores, 0.5) || !is(v.Server.CPU, 0.5) {
		t.Errorf("2 s later: got %+v with %v and %v cores", m, *m.Instances[0].CPUCores, *v.Server.CPU)
	}

	// Another server replaces this one: counters and log lines start from the beginning.
	f.Tell(t, snapshotOf(begin.Add(20*time.Second), begin.Add(10*time.Second), 5, 0, 1, "anew"))
	v = p.poll(t.Context())
	if m = v.row(t, "m"); !is(m.Rate, 3) || len(v.Log) != 0 || p.lines != 0 {
		t.Errorf("after a restart: got %+v and the log %+v, want the rate of the last minute, and the log to be asked for", m, v.Log)
	}
	v = p.poll(t.Context())
	if len(v.Log) != 1 || v.Log[0].Text != "anew" {
		t.Errorf("got the log %+v, want the new server's", v.Log)
	}
	// The server stops, the metrics endpoint last.
	ending := NewFakeServer(t)
	ending.Reply("GET /metrics", "nv_cpu_utilization 0.5\n")
	p.place(whereabouts{url: mustParse(t, ending.URL), settled: true})
	ending.mu.Lock()
	ending.replies["GET /status"] = "close"
	ending.mu.Unlock()
	f.CloseClientConnections()
	f.Close()
	v = p.poll(t.Context())
	if v.Lost == "" || len(v.Models) != 3 || v.since.IsZero() {
		t.Errorf("got %+v of a server that is gone, want what was known before", v)
	}
	since := v.since
	if v = p.poll(t.Context()); !v.since.Equal(since) {
		t.Errorf("the server is lost since %s, got %s", since, v.since)
	}
}

// TestPollerWithoutTheStatus polls a server that is not Nereid, and a Nereid server that does not
// provide its status.
func TestPollerWithoutTheStatus(t *testing.T) {
	f := NewFakeServer(t)
	f.Reply("POST /v2/repository/index", `[{"name":"m","version":"1","state":"READY"}]`)
	statistics := func(n int) string {
		return fmt.Sprintf(`{"model_stats":[{"name":"m","version":"1","inference_count":%d,"execution_count":%d,"inference_stats":{"success":{"count":%d,"ns":%d},"fail":{"count":0,"ns":0}}}]}`, 4*n, n, n, n*5_000_000)
	}
	page := func(n int) string {
		return fmt.Sprintf(`# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="m",version="1"} 6
# TYPE nereid_inference_request_seconds histogram
nereid_inference_request_seconds_bucket{model="m",version="1",le="0.001"} 0
nereid_inference_request_seconds_bucket{model="m",version="1",le="0.002"} %d
nereid_inference_request_seconds_bucket{model="m",version="1",le="+Inf"} %d
nereid_inference_request_seconds_sum{model="m",version="1"} 1
nereid_inference_request_seconds_count{model="m",version="1"} %d
# TYPE nereid_instance_resident_bytes gauge
nereid_instance_resident_bytes{model="m",version="1",instance_name="m_0_0"} 1000
nereid_instance_resident_bytes{model="m",version="1",instance_name="m_0_1"} 500
# TYPE nereid_stub_losses_total counter
nereid_stub_losses_total{model="m",cause="exit"} 2
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
`, n, n, n)
	}
	f.Reply("GET /status", "") // the metrics endpoint's reply to unknown paths
	f.Reply("GET /v2/models/stats", statistics(10))
	f.Reply("GET /metrics", page(10))
	p := f.poller(t)
	v := p.poll(t.Context())
	if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "--allow-status=false") {
		t.Errorf("got the notes %q, want one of the status", v.Notes)
	}
	f.Reply("GET /v2/models/stats", statistics(30))
	f.Reply("GET /metrics", page(30))
	v = p.poll(t.Context())
	m := v.row(t, "m")
	if m.Rate == nil || *m.Rate <= 0 || !is(m.Batch, 4) || !is(m.Mean, 0.005) || !is(m.Queue, 6) || !is(m.Losses, 2) || !is(m.Resident, 1500) || !is(m.Total, 2) || len(m.Instances) != 2 {
		t.Errorf("got %+v", m)
	}
	if p := m.percentiles(2); p == nil || p.P50 < 0.0014 || p.P50 > 0.0016 {
		t.Errorf("got the percentiles %+v, want those of the 20 requests between", p)
	}
	if len(v.Server.GPUs) != 1 || v.Server.GPUs[0].Utilization != 0.5 {
		t.Errorf("got the GPUs %+v", v.Server.GPUs)
	}
	f.Reply("GET /v2/models/stats", statistics(3))
	if m = p.poll(t.Context()).row(t, "m"); m.Rate != nil && *m.Rate < 0 {
		t.Errorf("got the rate %v of counters that have fallen", *m.Rate)
	}

	f.mu.Lock()
	delete(f.replies, "GET /metrics")
	delete(f.replies, "POST /v2/repository/index")
	f.mu.Unlock()
	v = p.poll(t.Context())
	if m = v.row(t, "m"); m.State != "READY" || m.Queue != nil || len(v.Notes) != 3 || v.Lost != "" {
		t.Errorf("got %+v and the notes %q, want the model by its statistics alone, and three notes", m, v.Notes)
	}
}

// TestPercentilesOfAVersionThatWasIdle checks a version that has no histogram before its first
// request, and whose queue time and total time have different buckets.
func TestPercentilesOfAVersionThatWasIdle(t *testing.T) {
	f := NewFakeServer(t)
	f.Reply("POST /v2/repository/index", `[{"name":"m","version":"1","state":"READY"}]`)
	f.Reply("GET /status", "")
	f.Reply("GET /v2/models/stats", `{"model_stats":[]}`)
	const idle = `# TYPE nereid_instance_resident_bytes gauge
nereid_instance_resident_bytes{model="m",version="1",instance_name="m_0_0"} 1000
`
	f.Reply("GET /metrics", idle)
	p := f.poller(t)
	m := p.poll(t.Context()).row(t, "m")
	if !is(m.Losses, 0) || !is(m.Total, 1) || m.percentiles(2) != nil {
		t.Errorf("got %+v of a version that was idle, want its instance, no loss and no percentiles", m)
	}
	f.Reply("GET /metrics", idle+`# TYPE nereid_inference_queue_seconds histogram
nereid_inference_queue_seconds_bucket{model="m",version="1",le="0.5"} 0
nereid_inference_queue_seconds_bucket{model="m",version="1",le="0.7"} 10
nereid_inference_queue_seconds_bucket{model="m",version="1",le="+Inf"} 10
nereid_inference_queue_seconds_count{model="m",version="1"} 10
# TYPE nereid_inference_request_seconds histogram
nereid_inference_request_seconds_bucket{model="m",version="1",le="0.001"} 0
nereid_inference_request_seconds_bucket{model="m",version="1",le="0.002"} 10
nereid_inference_request_seconds_bucket{model="m",version="1",le="1"} 10
nereid_inference_request_seconds_bucket{model="m",version="1",le="+Inf"} 10
nereid_inference_request_seconds_count{model="m",version="1"} 10
`)
	v := p.poll(t.Context())
	m = v.row(t, "m")
	if p := m.percentiles(2); p == nil || p.P50 < 0.0014 || p.P50 > 0.0016 {
		t.Errorf("got the percentiles %+v, want those of its first 10 requests", p)
	}
	if len(m.Queueing) != 1 || m.Queueing[0] == nil || m.Queueing[0].P50 < 0.59 || m.Queueing[0].P50 > 0.61 {
		t.Errorf("got %+v of the queue, want half of the requests within 0.6 s", m.Queueing)
	}
	f.Reply("GET /metrics", idle) // it was reloaded
	if m = p.poll(t.Context()).row(t, "m"); m.percentiles(2) != nil {
		t.Errorf("got the percentiles %+v of a version that has been loaded anew, want none", m.percentiles(2))
	}
}

func TestChangesAreCarriedOut(t *testing.T) {
	f := NewFakeServer(t)
	p := f.poller(t)
	f.Reply("POST /v2/repository/models/m/load", "")
	f.Reply("POST /v2/repository/models/m/unload", "")
	f.Reply("POST /v2/repository/models/ours/instances", "{}")
	f.Reply("POST /v2/repository/models/refuses/load", `400 {"error":"no such model"}`)
	f.Reply("GET /v2/models/m/config", `{"name":"m","instance_group":[{"name":"m_0","count":1,"kind":"KIND_CPU"}]}`)
	f.Reply("POST /v2/repository/models/triton/instances", `400 {"error":"Not Found"}`)
	f.Reply("GET /v2/models/triton/config", `{"instance_group":[{"count":1}]}`)
	f.Reply("POST /v2/repository/models/triton/load", "")
	f.Reply("GET /v2/models/two/config", `{"instance_group":[{},{}]}`)
	for _, c := range []struct {
		a         act
		asked     string
		text, err string
	}{
		{act{what: "load", model: "m"}, "POST /v2/repository/models/m/load ", "loaded m", ""},
		{act{what: "unload", model: "m"}, "POST /v2/repository/models/m/unload ", "unloaded m", ""},
		{act{what: "load", model: "refuses"}, "POST /v2/repository/models/refuses/load ", "", "status 400: no such model"},
		{act{what: "instances", model: "ours", group: "g", count: 2}, `POST /v2/repository/models/ours/instances {"count":2,"group":"g"}`, "ours has 2 instances", ""},
		{act{what: "instances", model: "m", count: 4}, `POST /v2/repository/models/m/load {"parameters":{"config":"{\"instance_group\":[{\"count\":4,\"kind\":\"KIND_CPU\",\"name\":\"m_0\"}],\"name\":\"m\"}"}}`, "m has 4 instances", ""},
		{act{what: "instances", model: "triton", count: 5}, `POST /v2/repository/models/triton/load {"parameters":{"config":"{\"instance_group\":[{\"count\":5}]}"}}`, "triton has 5 instances", ""},
		{act{what: "instances", model: "two", count: 4}, `POST /v2/repository/models/two/instances {"count":4}`, "", "the model has 2 instance groups, want one"},
	} {
		got := perform(t.Context(), p.server, c.a)
		f.mu.Lock()
		last := f.asked[len(f.asked)-1]
		f.mu.Unlock()
		if last != c.asked || (got.err == nil) != (c.err == "") || got.err != nil && got.err.Error() != c.err || got.err == nil && got.text != c.text {
			t.Errorf("%+v: got %q, %v after %s, want %q, %s after %s", c.a, got.text, got.err, last, c.text, c.err, c.asked)
		}
	}
}

type panickingTransport struct{}

func (panickingTransport) RoundTrip(*http.Request) (*http.Response, error) { panic("transport") }

// TestPanicOfALookIsItsOutcome checks that a panic while an endpoint is polled is reported as that
// poll's result and does not end the program.
func TestPanicOfALookIsItsOutcome(t *testing.T) {
	address := mustParse(t, "http://localhost")
	p := newPoller(&options{server: address, metrics: address})
	p.server.HTTP.Transport, p.metrics.HTTP.Transport = panickingTransport{}, panickingTransport{}
	var told bytes.Buffer
	p.panics = zerolog.New(zerolog.SyncWriter(&told))
	if v := p.poll(t.Context()); v.Lost != "internal error" {
		t.Errorf("got %q, want the panic in the place of the server", v.Lost)
	}
	if got := strings.Count(told.String(), `"error":"transport"`); got != 5 {
		t.Errorf("got %d panics told, want those of 5 endpoints: %s", got, told.String())
	}
}
