package top

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/uniseg"
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/status"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeServer replies by method and path. Anything else gets 404 without a body.
type fakeServer struct {
	*httptest.Server
	mu      sync.Mutex
	replies map[string]string
	asked   []string // method, path and body of each request other than GET
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{replies: map[string]string{"GET /v2": `{"name":"triton","version":"2.51.0"}`}}
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

func (f *fakeServer) reply(to, with string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[to] = with
}

// tell sets the server's status.
func (f *fakeServer) tell(t *testing.T, s *status.Snapshot) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	f.reply("GET /status", string(text))
}

func (f *fakeServer) poller(t *testing.T) *poller {
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

func mustParse(t *testing.T, text string) *client.Address {
	t.Helper()
	u, err := client.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
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
	f := newFakeServer(t)
	f.reply("POST /v2/repository/index", `[{"name":"m","version":"2","state":"READY"},{"name":"other"},{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"no"}]`)
	f.reply("GET /v2/models/stats", `{"model_stats":[]}`)
	f.reply("GET /metrics", "nv_cpu_utilization 0.25\n")
	p := f.poller(t)
	begin := time.Unix(1_000_000, 0)
	f.tell(t, snapshotOf(begin, begin, 100, 0, 5, "one"))
	v := p.poll(t.Context())
	m := v.row(t, "m")
	if !is(m.Rate, 3) || !is(m.Queue, 3) || !is(m.InFlight, 4) || !is(m.Ready, 1) || !is(m.Total, 2) || !is(m.Losses, 3) || !is(m.P99, 0.004) || m.Version != "2" {
		t.Errorf("at first: got %+v, want the rate of the last minute", m)
	}
	if len(v.Models) != 3 || v.row(t, "other").State != "" || v.row(t, "bad").Reason != "no" || !is(v.Server.MachineCPU, 0.25) || len(v.Notes) != 0 {
		t.Errorf("got %+v, want the models of the index too, and no notes", v)
	}

	f.tell(t, snapshotOf(begin.Add(2*time.Second), begin, 150, 10, 6, "one", "two"))
	v = p.poll(t.Context())
	m = v.row(t, "m")
	if !is(m.Rate, 25) || !is(m.Errors, 5) || !is(m.Batch, 2) || !is(m.Mean, 0.01) || !is(m.Instances[0].CPUCores, 0.5) || !is(v.Server.CPU, 0.5) {
		t.Errorf("2 s later: got %+v with %v and %v cores", m, *m.Instances[0].CPUCores, *v.Server.CPU)
	}

	// Another server replaces this one: counters and log lines start from the beginning.
	f.tell(t, snapshotOf(begin.Add(20*time.Second), begin.Add(10*time.Second), 5, 0, 1, "anew"))
	v = p.poll(t.Context())
	if m = v.row(t, "m"); !is(m.Rate, 3) || len(v.Log) != 0 || p.lines != 0 {
		t.Errorf("after a restart: got %+v and the log %+v, want the rate of the last minute, and the log to be asked for", m, v.Log)
	}
	v = p.poll(t.Context())
	if len(v.Log) != 1 || v.Log[0].Text != "anew" {
		t.Errorf("got the log %+v, want the new server's", v.Log)
	}
	// The server stops, the metrics endpoint last.
	ending := newFakeServer(t)
	ending.reply("GET /metrics", "nv_cpu_utilization 0.5\n")
	p.options.metrics = mustParse(t, ending.URL)
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
	f := newFakeServer(t)
	f.reply("POST /v2/repository/index", `[{"name":"m","version":"1","state":"READY"}]`)
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
	f.reply("GET /status", "") // the metrics endpoint's reply to unknown paths
	f.reply("GET /v2/models/stats", statistics(10))
	f.reply("GET /metrics", page(10))
	p := f.poller(t)
	v := p.poll(t.Context())
	if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "--allow-status=false") {
		t.Errorf("got the notes %q, want one of the status", v.Notes)
	}
	f.reply("GET /v2/models/stats", statistics(30))
	f.reply("GET /metrics", page(30))
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
	f.reply("GET /v2/models/stats", statistics(3))
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
	f := newFakeServer(t)
	f.reply("POST /v2/repository/index", `[{"name":"m","version":"1","state":"READY"}]`)
	f.reply("GET /status", "")
	f.reply("GET /v2/models/stats", `{"model_stats":[]}`)
	const idle = `# TYPE nereid_instance_resident_bytes gauge
nereid_instance_resident_bytes{model="m",version="1",instance_name="m_0_0"} 1000
`
	f.reply("GET /metrics", idle)
	p := f.poller(t)
	m := p.poll(t.Context()).row(t, "m")
	if !is(m.Losses, 0) || !is(m.Total, 1) || m.percentiles(2) != nil {
		t.Errorf("got %+v of a version that was idle, want its instance, no loss and no percentiles", m)
	}
	f.reply("GET /metrics", idle+`# TYPE nereid_inference_queue_seconds histogram
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
	f.reply("GET /metrics", idle) // it was reloaded
	if m = p.poll(t.Context()).row(t, "m"); m.percentiles(2) != nil {
		t.Errorf("got the percentiles %+v of a version that has been loaded anew, want none", m.percentiles(2))
	}
}

// many returns a view with n models.
func many(n int) *View {
	v := &View{At: time.Unix(5000, 0), URL: "http://host:8000", Notes: []string{"no metrics at x"}, Server: Server{Name: "triton", Control: "explicit", GPUs: []GPU{{UUID: "GPU-1"}}}, hasStatus: true}
	for i := range n {
		r := Row{Model: fmt.Sprintf("model_%02d", i), Version: "1", State: "READY", Rate: number((i * 7) % 10), Reason: "a\nb", Groups: []status.Group{{Name: "g", Count: 1}}}
		r.Instances = []Instance{{Instance: status.Instance{Name: "x", State: "dead", LastLoss: &status.Loss{Text: strings.Repeat("wide 漢字 ", 40)}}}}
		v.Models = append(v.Models, r)
	}
	for i := range 60 {
		v.Log = append(v.Log, status.Line{Level: "error", Text: fmt.Sprintf("line %d\n  traceback", i)})
	}
	v.Errors = v.Log
	return v
}

// TestFrameFitsEveryTerminal checks that the frame fits terminals of all sizes while keys are
// pressed.
func TestFrameFitsEveryTerminal(t *testing.T) {
	for _, v := range []*View{nil, many(0), many(1), many(40)} {
		u := &ui{}
		for _, key := range []string{"", "d", "tab", "end", "e", "page up", "l", "i", "tab", "down", "page down", "end", "s", "S", "w", "?", "x", "/", "9", "enter", "escape", "u", "n", "n", "7", "home"} {
			u.press(key, v, 24)
			for _, width := range []int{1, 19, 20, 37, 80, 300} {
				for _, height := range []int{1, 3, 4, 5, 8, 11, 12, 24, 100} {
					lines := u.frame(v, "http://host:8000", width, height)
					if len(lines) > height {
						t.Fatalf("key %q, %d x %d: got %d lines", key, width, height, len(lines))
					}
					for _, l := range lines {
						if strings.ContainsAny(l.String(), "\n\x1b\t") {
							t.Fatalf("key %q: got the control characters of %q", key, l)
						}
					}
				}
			}
		}
	}
	v := many(40)
	for _, width := range []int{40, 60, 80, 120} {
		u := &ui{}
		for _, l := range modelTable(u.rows(v), u, width) {
			if w := uniseg.StringWidth(l.String()); w > width {
				t.Errorf("%d columns: got a line of %d: %s", width, w, l)
			}
		}
	}
}

func TestTheChosenRowStaysInSight(t *testing.T) {
	v, u := many(40), &ui{}
	shows := func(want string) {
		t.Helper()
		for _, l := range u.frame(v, "", 100, 24) {
			if len(l) > 0 && l[0].style == selected && strings.Contains(l.String(), want+" ") {
				return
			}
		}
		t.Errorf("%s is not selected in\n%v", want, u.frame(v, "", 100, 24))
	}
	shows("model_00")
	for range 30 {
		u.press("down", v, 24)
	}
	shows("model_30")
	u.press("end", v, 24)
	shows("model_39")
	u.sort = columnOf("rate") // largest first; it stays selected
	shows("model_39")
	u.press("home", v, 24)
	shows("model_07")
	u.press("/", v, 24)
	for _, key := range []string{"_", "1", "x", "backspace", "enter"} {
		u.press(key, v, 24)
	}
	if rows := u.rows(v); len(rows) != 10 || rows[0].Model != "model_17" {
		t.Errorf("got %d rows, the first %+v, want those with _1, the fastest first", len(rows), rows[0])
	}
	u.press("S", v, 24)
	if rows := u.rows(v); rows[0].Model != "model_10" {
		t.Errorf("got %s first, want the slowest", rows[0].Model)
	}
	word, all := keyOf(tcell.NewEventKey(tcell.KeyCtrlW, 0, tcell.ModCtrl)), keyOf(tcell.NewEventKey(tcell.KeyCtrlU, 0, tcell.ModCtrl))
	u.press("/", v, 24) // edits the current filter
	for _, step := range []struct{ key, want string }{
		{" ", "_1 "}, {"o", "_1 o"}, {word, "_1 "}, {word, ""}, {word, ""}, {"a", "a"}, {" ", "a "}, {"b", "a b"}, {all, ""}, {"enter", ""},
	} {
		u.press(step.key, v, 24)
		if u.ask != nil && u.ask.typed != step.want {
			t.Errorf("after %q: got %q typed, want %q", step.key, u.ask.typed, step.want)
		}
	}
	if n := len(u.rows(v)); n != 40 {
		t.Errorf("got %d rows with an empty filter, want 40", n)
	}
	u.press("escape", v, 24)
	if n := len(u.rows(v)); n != 40 {
		t.Errorf("got %d rows without a filter, want 40", n)
	}
}

func TestWhatIsNotKnownComesLast(t *testing.T) {
	v := &View{Models: []Row{{Model: "a"}, {Model: "b", Queue: number(1)}, {Model: "c"}, {Model: "d", Queue: number(5)}}}
	u := &ui{sort: columnOf("queue")}
	for want, reverse := range map[string]bool{"dbac": false, "bdac": true} {
		u.reverse = reverse
		got := ""
		for _, r := range u.rows(v) {
			got += r.Model
		}
		if got != want {
			t.Errorf("reverse %t: got %s, want %s", reverse, got, want)
		}
	}
}

// TestChangesAreConfirmed checks the actions that result from keys that change models.
func TestChangesAreConfirmed(t *testing.T) {
	v := many(2)
	press := func(keys ...string) (last *act, u *ui) {
		u = &ui{}
		for _, key := range keys {
			if _, a := u.press(key, v, 24); a != nil {
				last = a
			}
		}
		return last, u
	}
	for _, c := range []struct {
		keys    []string
		want    *act
		message string
	}{
		{[]string{"u", "y"}, &act{what: "unload", model: "model_00"}, ""},
		{[]string{"u", "enter"}, nil, "nothing was changed"},
		{[]string{"u", "u", "u"}, nil, ""},
		{[]string{"down", "r", "Y"}, &act{what: "load", model: "model_01"}, ""},
		{[]string{"n", "3", "enter", "y"}, &act{what: "instances", model: "model_00", count: 3}, ""},
		{[]string{"n", "3", "enter", "n"}, nil, "nothing was changed"},
		{[]string{"n", "0", "enter"}, nil, `got "0", want a number of instances, 1 or more`},
		{[]string{"n", "y", "enter"}, nil, `got "y", want a number of instances, 1 or more`},
		{[]string{"n", "escape"}, nil, ""},
	} {
		got, u := press(c.keys...)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want || u.message != c.message && c.message != "" {
			t.Errorf("%q: got %+v and %q, want %+v and %q", c.keys, got, u.message, c.want, c.message)
		}
	}
	v.Server.Control = "none"
	if got, u := press("u"); got != nil || !strings.Contains(u.message, "--model-control-mode=explicit") {
		t.Errorf("got %+v and %q of a server that changes nothing", got, u.message)
	}
	v.Server.Control = ""
	v.Models[0].State = "UNAVAILABLE"
	if got, u := press("n"); got != nil || !strings.Contains(u.message, "load it first") {
		t.Errorf("got %+v and %q of a model that is not loaded", got, u.message)
	}
}

func TestOnlyWhatIsLoadedIsUnloaded(t *testing.T) {
	for _, state := range []string{"", "UNAVAILABLE"} {
		v := many(1)
		v.Models[0].State = state
		u := &ui{}
		u.press("u", v, 24)
		if want := v.Models[0].Model + " is not loaded"; u.ask != nil || u.message != want || !u.wrong {
			t.Errorf("in state %q: got %q, want %q", state, u.message, want)
		}
		again := v.Models[0]
		again.Version, again.State = "2", "READY"
		v.Models = append(v.Models, again)
		if u.press("u", v, 24); u.ask == nil {
			t.Errorf("in state %q: got %q, want a question, as version 2 serves", state, u.message)
		}
	}
}

// TestFilterHoldsForAllThatIsShownOnce checks that --filter applies to models, errors and log lines
// with --once and --json.
func TestFilterHoldsForAllThatIsShownOnce(t *testing.T) {
	f := newFakeServer(t)
	at := time.Now()
	f.tell(t, &status.Snapshot{
		At: at, Versions: []status.Version{{Model: "greeter", Version: 1, State: "READY"}, {Model: "other", Version: 1, State: "READY"}},
		Errors: []status.Line{{Sequence: 1, Level: "error", Text: "failed to load 'Greeter'"}, {Sequence: 2, Level: "error", Text: "failed to load 'other'"}},
		Log:    []status.Line{{Sequence: 1, Level: "error", Text: "failed to load 'Greeter'"}, {Sequence: 2, Level: "error", Text: "failed to load 'other'"}}, Last: 2,
	})
	f.reply("POST /v2/repository/index", `[{"name":"greeter","version":"1","state":"READY"},{"name":"other","version":"1","state":"READY"}]`)
	for _, how := range []string{"--once", "--json"} {
		var stdout, stderr bytes.Buffer
		if code := Run([]string{how, "--filter", "greet", "--url", f.URL, "--metrics-url", f.URL}, &stdout, &stderr); code != 0 {
			t.Errorf("%s: got status %d and %s", how, code, stderr.String())
		}
		if text := stdout.String(); !strings.Contains(text, "greeter") || !strings.Contains(text, "failed to load 'Greeter'") || strings.Contains(text, "other") {
			t.Errorf("%s: got %s, want greeter alone", how, text)
		}
	}
}

func TestChangesAreCarriedOut(t *testing.T) {
	f := newFakeServer(t)
	p := f.poller(t)
	f.reply("POST /v2/repository/models/m/load", "")
	f.reply("POST /v2/repository/models/m/unload", "")
	f.reply("POST /v2/repository/models/ours/instances", "{}")
	f.reply("POST /v2/repository/models/refuses/load", `400 {"error":"no such model"}`)
	f.reply("GET /v2/models/m/config", `{"name":"m","instance_group":[{"name":"m_0","count":1,"kind":"KIND_CPU"}]}`)
	f.reply("POST /v2/repository/models/triton/instances", `400 {"error":"Not Found"}`)
	f.reply("GET /v2/models/triton/config", `{"instance_group":[{"count":1}]}`)
	f.reply("POST /v2/repository/models/triton/load", "")
	f.reply("GET /v2/models/two/config", `{"instance_group":[{},{}]}`)
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

func TestTextsOfOthersAreHarmless(t *testing.T) {
	if got := clean("a\x1b[2J\u009bb\nc\u202e\xff"); got != `a\u001B[2J\u009Bb c\u202E\xFF` {
		t.Errorf("got %q", got)
	}
	for _, c := range []struct {
		text  string
		width int
		right bool
		want  string
	}{
		{"abc", 5, false, "abc  "}, {"abc", 5, true, "  abc"}, {"abcdef", 4, false, "abc…"}, {"漢字漢字", 4, false, "漢 …"}, {"漢字", 4, false, "漢字"}, {"abc", 0, false, ""},
	} {
		if got := fit(c.text, c.width, c.right); got != c.want {
			t.Errorf("fit %q to %d: got %q, want %q", c.text, c.width, got, c.want)
		}
	}
	for want, got := range map[string]string{
		"29µs": duration(29e-6), "1.1ms": duration(0.00112), "250ms": duration(0.25), "2.5s": duration(2.5), "61s": duration(61),
		"512 B": size(512), "1.0 KiB": size(1000), "30 MiB": size(30 << 20), "1.2 GiB": size(1.2 * (1 << 30)),
		"7": amount(7), "0.2": amount(0.21), "1205": amount(1204.6), "59s": ago(59 * time.Second), "2m 5s": ago(125 * time.Second), "3d 1h": ago(73 * time.Hour),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
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
		if status := Run(c.args, &stdout, &stderr); status != c.status || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", c.args, status, stderr.String(), stdout.String(), c.status, c.want)
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
