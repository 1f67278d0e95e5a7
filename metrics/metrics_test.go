package metrics

import (
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

func render(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func contains(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestModelCountersAreShown(t *testing.T) {
	r := New(Config{Summaries: true, Histograms: true, PinnedPoolBytes: 42})
	m := r.Model("m", 3, ModelOptions{Tags: map[string]string{"team": "a"}})
	plain := r.Model("n", 1, ModelOptions{})
	m.Success(4, Durations{Total: 9_999_999, Queue: 1_000, Input: 999, Infer: 5_000, Output: 2_001})
	m.Execution()
	m.Failure(ReasonCanceled)
	m.FirstResponse(9_999_999)
	m.Pending(2)
	m.Pending(-1)
	m.Loaded(1500 * time.Millisecond)
	labels := `{_team="a",model="m",version="3"}`
	text := render(t, r)
	contains(t, text,
		"# TYPE nv_inference_request_success counter",
		"nv_inference_request_success"+labels+" 1",
		"nv_inference_count"+labels+" 4",
		"nv_inference_exec_count"+labels+" 1",
		"nv_inference_request_duration_us"+labels+" 9999",
		"nv_inference_queue_duration_us"+labels+" 1",
		"nv_inference_compute_input_duration_us"+labels+" 0",
		"nv_inference_compute_infer_duration_us"+labels+" 5",
		"nv_inference_compute_output_duration_us"+labels+" 2",
		"nv_inference_pending_request_count"+labels+" 1",
		"nv_model_load_duration_secs"+labels+" 1.5",
		`nv_inference_request_failure{_team="a",model="m",reason="CANCELED",version="3"} 1`,
		`nv_inference_request_failure{_team="a",model="m",reason="OTHER",version="3"} 0`,
		`nv_inference_request_summary_us_count{_team="a",model="m",version="3"} 1`,
		`nv_inference_first_response_histogram_ms_bucket{_team="a",model="m",version="3",le="100"} 1`,
		`nv_inference_count{model="n",version="1"} 0`,
		"nv_pinned_memory_pool_total_bytes 42",
	)
	m.Close()
	plain.Close()
	if text := render(t, r); strings.Contains(text, "nv_inference") {
		t.Errorf("unloaded models are still shown:\n%s", text)
	}
}

func TestTwoLoadsOfAVersionCountTogether(t *testing.T) {
	r := New(Config{})
	first, second := r.Model("m", 1, ModelOptions{}), r.Model("m", 1, ModelOptions{})
	first.Success(1, Durations{})
	second.Success(1, Durations{})
	first.Close()
	contains(t, render(t, r), `nv_inference_count{model="m",version="1"} 2`)
	second.Close()
	if strings.Contains(render(t, r), "nv_inference_count") {
		t.Error("still shown after both were closed")
	}
}

func TestCacheCountersAreShownForCachedModels(t *testing.T) {
	r := New(Config{Summaries: true})
	plain, cached := r.Model("m", 1, ModelOptions{}), r.Model("c", 1, ModelOptions{Cache: true})
	for _, m := range []*Model{plain, cached} {
		m.Success(2, Durations{Total: 5_000, Queue: 1_000})
	}
	cached.CacheMiss(2_999)
	cached.CacheHit(4_000, 0, 3_999)
	figures := CacheFigures{
		Used: 1, Size: 4, Entries: 5, Lookups: 6, Hits: 7, Misses: 8, Evictions: 9,
		LookupTime: 10999 * time.Nanosecond, InsertionTime: 11 * time.Microsecond,
	}
	r.Cache(func() CacheFigures { return figures })
	text := render(t, r)
	labels := `{model="c",version="1"}`
	contains(t, text,
		"# HELP nv_cache_num_hits_per_model Number of cache hits per model",
		"# TYPE nv_cache_num_hits_per_model counter",
		"nv_cache_num_hits_per_model"+labels+" 1",
		"nv_cache_hit_duration_per_model"+labels+" 3",
		"nv_cache_num_misses_per_model"+labels+" 1",
		"nv_cache_miss_duration_per_model"+labels+" 2",
		"nv_cache_hit_summary_per_model_count"+labels+" 1",
		"nv_cache_hit_summary_per_model_sum"+labels+" 3",
		"nv_cache_miss_summary_per_model_sum"+labels+" 2",
		"nv_inference_request_success"+labels+" 2",
		"nv_inference_count"+labels+" 2",
		"nv_inference_request_duration_us"+labels+" 11",
		"nv_inference_queue_summary_us_count"+labels+" 2",
		"nv_inference_compute_infer_summary_us_count"+labels+" 1",
		`nv_inference_request_summary_us_count{model="m",version="1"} 1`,
		"# HELP nv_cache_util Cache utilization [0.0 - 1.0]",
		"# TYPE nv_cache_util gauge",
		"nv_cache_util 0.25", "nv_cache_num_entries 5", "nv_cache_num_lookups 6", "nv_cache_num_hits 7", "nv_cache_num_misses 8",
		"nv_cache_num_evictions 9", "nv_cache_lookup_duration 10", "nv_cache_insertion_duration 11",
	)
	for _, absent := range []string{"nv_inference_request_summary_us_count" + labels, `per_model{model="m"`, `per_model_count{model="m"`} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is shown:\n%s", absent, text)
		}
	}
}

// TestALoadMayChangeWhatIsShown: while the load before is still there, one of the
// same version may have other tags, or a new cache.
func TestALoadMayChangeWhatIsShown(t *testing.T) {
	r := New(Config{})
	before := r.Model("m", 1, ModelOptions{})
	before.Success(1, Durations{})
	after := r.Model("m", 1, ModelOptions{Cache: true})
	after.CacheHit(1_000, 0, 1_000)
	tagged := r.Model("m", 1, ModelOptions{Tags: map[string]string{"team": "a"}})
	tagged.Success(1, Durations{})
	contains(t, render(t, r), `nv_inference_request_success{model="m",version="1"} 2`, `nv_cache_num_hits_per_model{model="m",version="1"} 1`,
		`nv_inference_request_success{_team="a",model="m",version="1"} 1`)
	for _, m := range []*Model{before, after, tagged} {
		m.Close()
	}
	if text := render(t, r); strings.Contains(text, `model="m"`) {
		t.Errorf("still shown after all were closed:\n%s", text)
	}
}

// TestStrangeOptionsDoNotSpoilThePage has tags and buckets that a config may name.
func TestStrangeOptionsDoNotSpoilThePage(t *testing.T) {
	r := New(Config{Histograms: true})
	m := r.Model("m", 1, ModelOptions{
		Tags:          map[string]string{"a-b": "1", "a_b": "2", "__name__": "3", "é": "4\xff", "c": "5\n"},
		FirstResponse: []float64{5, 3, math.NaN(), 3, math.Inf(1)},
	})
	defer m.Close()
	m.FirstResponse(4_000_000)
	contains(t, render(t, r),
		`nv_inference_count{_="4�",_a_b="1",_c="5\n",_name__="3",model="m",version="1"} 0`,
		`nv_inference_first_response_histogram_ms_bucket{_="4�",_a_b="1",_c="5\n",_name__="3",model="m",version="1",le="3"} 0`,
		`nv_inference_first_response_histogram_ms_bucket{_="4�",_a_b="1",_c="5\n",_name__="3",model="m",version="1",le="5"} 1`,
	)
	other := r.Model("m", 1, ModelOptions{Tags: map[string]string{"a_b": "1", "_name__": "3", "é": "4\xff", "c": "5\n"}})
	defer other.Close()
	if other != m {
		t.Error("two loads that show the same labels count apart")
	}
}

func TestNoCountersHidesDurations(t *testing.T) {
	r := New(Config{NoCounters: true})
	m := r.Model("m", 1, ModelOptions{Cache: true})
	defer m.Close()
	m.Success(1, Durations{Total: 5000})
	m.CacheMiss(5000)
	m.Failure(ReasonOther)
	m.Execution()
	text := render(t, r)
	contains(t, text, `nv_inference_request_success{model="m",version="1"} 0`, `nv_inference_exec_count{model="m",version="1"} 0`)
	if strings.Contains(text, "duration_us") || strings.Contains(text, "nv_cache") {
		t.Errorf("duration counters are shown, or those of caches:\n%s", text)
	}
}

func TestServerCountersAreShown(t *testing.T) {
	r := New(Config{})
	r.StubStarted("m")
	r.StubLost("m", "exit")
	r.StubRestarted("m")
	r.ProtocolError("ring")
	r.Gauge("nereid_test_bytes", "A test", func() float64 { return 7 })
	contains(t, render(t, r), `nereid_stub_starts_total{model="m"} 1`, `nereid_stub_losses_total{cause="exit",model="m"} 1`,
		`nereid_stub_restarts_total{model="m"} 1`,
		`nereid_stub_protocol_errors_total{rule="ring"} 1`, "nereid_test_bytes 7")
}

func TestStagesAreShownAsHistograms(t *testing.T) {
	r := New(Config{AllBuckets: true})
	m := r.Model("m", 1, ModelOptions{Cache: true})
	defer m.Close()
	m.Success(1, Durations{Total: 61e9, Queue: 50_000, Input: 50_001, Infer: 2_000_000, Output: -5})
	m.CacheHit(1_000_000, 0, 999)
	text := render(t, r)
	contains(t, text,
		"# TYPE nereid_inference_request_seconds histogram",
		`nereid_inference_request_seconds_count{model="m",version="1"} 2`,
		`nereid_inference_request_seconds_sum{model="m",version="1"} 61.001`,
		`nereid_inference_request_seconds_bucket{model="m",version="1",le="0.001"} 1`,
		`nereid_inference_request_seconds_bucket{model="m",version="1",le="60"} 1`,
		`nereid_inference_request_seconds_bucket{model="m",version="1",le="+Inf"} 2`,
		`nereid_inference_queue_seconds_bucket{model="m",version="1",le="5e-05"} 1`,
		`nereid_inference_compute_input_seconds_bucket{model="m",version="1",le="5e-05"} 0`,
		`nereid_inference_compute_input_seconds_bucket{model="m",version="1",le="0.0001"} 1`,
		`nereid_inference_compute_infer_seconds_bucket{model="m",version="1",le="0.0025"} 1`,
		`nereid_inference_compute_output_seconds_sum{model="m",version="1"} 0`,
	)
	without := New(Config{NoStages: true})
	n := without.Model("m", 1, ModelOptions{Cache: true})
	defer n.Close()
	n.Success(1, Durations{Total: 1})
	n.CacheHit(1, 0, 1)
	if text := render(t, without); strings.Contains(text, "nereid_inference_") {
		t.Errorf("stages are shown, which are not wanted:\n%s", text)
	}
}

// TestRequestsAreCountedWithoutAllocation is about each request of each model.
func TestRequestsAreCountedWithoutAllocation(t *testing.T) {
	m := New(Config{}).Model("m", 1, ModelOptions{})
	defer m.Close()
	if n := testing.AllocsPerRun(100, func() { m.Success(1, Durations{Total: 1e6, Queue: 1e3}) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// TestProcessesAreShown adds up two loads of one version, and reads again when the
// interval is over.
func TestProcessesAreShown(t *testing.T) {
	list := []Process{
		{Model: "m", Version: 1, Instance: "m_0", CPU: 1500 * time.Millisecond, Resident: 100, Arena: 7, Holds: []Bytes{{"blocks", 5, 500}, {"frames", 6, 600}}},
		{Model: "m", Version: 1, Instance: "m_1", CPU: time.Second, Resident: 50, Arena: 8, Lent: 1 << 25, Holds: []Bytes{{"frames", 7, 600}}},
		{Model: "m", Version: 1, Instance: "m_0", CPU: time.Second, Resident: 10, Arena: 1, Lent: 1},
		{Model: "m", Namespace: "/left", Version: 1, Instance: "m_0", CPU: time.Second, Resident: 11, Arena: 2, Holds: []Bytes{{"frames", 9, 0}}},
		{Model: "m", Namespace: "/right", Version: 1, Instance: "m_0", CPU: time.Second, Resident: 12, Arena: 3},
	}
	asked := 0
	ask := func() []Process { asked++; return list }
	r := New(Config{Interval: time.Hour})
	r.Processes(ask)
	want := []string{
		"# TYPE nereid_instance_cpu_seconds_total counter",
		`nereid_instance_cpu_seconds_total{instance_name="m_0",model="m",version="1"} 2.5`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",version="1"} 110`,
		`nereid_instance_resident_bytes{instance_name="m_1",model="m",version="1"} 50`,
		`nereid_arena_bytes{model="m",version="1"} 16`,
		`nereid_device_lent_bytes{model="m",version="1"} 33554433`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",namespace="/left",version="1"} 11`,
		`nereid_instance_resident_bytes{instance_name="m_0",model="m",namespace="/right",version="1"} 12`,
		`nereid_arena_bytes{model="m",namespace="/right",version="1"} 3`,
		`nereid_model_memory_bytes{kind="blocks",model="m",version="1"} 5`,
		`nereid_model_memory_bytes{kind="frames",model="m",version="1"} 13`,
		`nereid_model_memory_bytes{kind="frames",model="m",namespace="/left",version="1"} 9`,
		`nereid_model_memory_limit_bytes{kind="blocks",model="m",version="1"} 500`,
		`nereid_model_memory_limit_bytes{kind="frames",model="m",version="1"} 600`,
	}
	contains(t, render(t, r), want...)
	if strings.Contains(render(t, r), `nereid_device_lent_bytes{model="m",namespace`) {
		t.Error("memory of devices is shown of a model that has lent none")
	}
	if strings.Contains(render(t, r), `nereid_model_memory_bytes{kind="frames",model="m",namespace="/right"`) {
		t.Error("memory is shown of a model that has the server hold none")
	}
	if strings.Contains(render(t, r), `nereid_model_memory_limit_bytes{kind="frames",model="m",namespace="/left"`) {
		t.Error("a bound is shown of a model that has none")
	}
	list = nil
	contains(t, render(t, r), want...)
	if asked != 1 {
		t.Errorf("the list was made %d times within the interval, want once", asked)
	}
	r = New(Config{})
	r.Processes(ask)
	if text := render(t, r); strings.Contains(text, "nereid_instance") || strings.Contains(text, "nereid_arena") {
		t.Errorf("processes are shown, of which there are none:\n%s", text)
	}
	for _, name := range []string{"nereid_arena_bytes", "nereid_model_memory_bytes", "nereid_model_memory_limit_bytes", "nereid_device_lent_bytes", "nereid_inference_queue_seconds_bucket", "nereid_stub_restarts_total"} {
		if !ownNames(&Config{})[name] {
			t.Errorf("a model may take the name %s, want it reserved", name)
		}
	}
}

func TestMachineFiguresAreRead(t *testing.T) {
	busy, idle := processors([]byte("cpu  1 2 3 10 20 4 5 6 100 200\ncpu0 9 9 9 9\n"))
	if busy != 21 || idle != 30 {
		t.Errorf("busy %d, idle %d, want 21 and 30", busy, idle)
	}
	total, available := memory([]byte("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    300 kB\n"))
	if total != 1000<<10 || available != 300<<10 {
		t.Errorf("total %d, available %d", total, available)
	}
	text := render(t, New(Config{CPU: true}))
	for _, name := range []string{"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no %s in\n%s", name, text)
		}
	}
}

// TestInternalErrorsAreCountedFromTheStart: every part has its count before anything has
// happened, and models cannot take the name.
func TestInternalErrorsAreCountedFromTheStart(t *testing.T) {
	r := New(Config{})
	before := render(t, r)
	for _, where := range []string{"server", "connection", "request", "models", "scheduler", "life", "memory"} {
		if !strings.Contains(before, "\nnereid_internal_errors_total{where=\""+where+"\"} ") {
			t.Errorf("no count of %s in\n%s", where, before)
		}
	}
	line := func() (line string) {
		for line = range strings.Lines(render(t, r)) {
			if strings.HasPrefix(line, `nereid_internal_errors_total{where="memory"}`) {
				return line
			}
		}
		return ""
	}
	first := line()
	_ = panics.Run(zerolog.Nop(), panics.Memory, func() error { panic("for the count") })
	if second := line(); first == "" || first == second {
		t.Errorf("got %q before a panic and %q after it, want another count", first, second)
	}
	if !ownNames(&Config{})["nereid_internal_errors_total"] {
		t.Error("a model may take the name of the internal errors, want it reserved")
	}
}
