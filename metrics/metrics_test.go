package metrics_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/metrics"
)

func TestModelCountersAreShown(t *testing.T) {
	r := metrics.New(metrics.Config{Summaries: true, Histograms: true, PinnedPoolBytes: 42})
	m := r.Model("m", 3, metrics.ModelOptions{Tags: map[string]string{"team": "a"}})
	plain := r.Model("n", 1, metrics.ModelOptions{})
	m.Success(4, metrics.Durations{Total: 9_999_999, Queue: 1_000, Input: 999, Infer: 5_000, Output: 2_001})
	m.Execution()
	m.Failure(metrics.ReasonCanceled)
	m.FirstResponse(9_999_999)
	m.Pending(2)
	m.Pending(-1)
	m.Loaded(1500 * time.Millisecond)
	labels := `{_team="a",model="m",version="3"}`
	text := metrics.Render(t, r)
	metrics.Contains(t, text,
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
	if text := metrics.Render(t, r); strings.Contains(text, "nv_inference") {
		t.Errorf("unloaded models are still shown:\n%s", text)
	}
}

func TestTwoLoadsOfAVersionCountTogether(t *testing.T) {
	r := metrics.New(metrics.Config{})
	first, second := r.Model("m", 1, metrics.ModelOptions{}), r.Model("m", 1, metrics.ModelOptions{})
	first.Success(1, metrics.Durations{})
	second.Success(1, metrics.Durations{})
	first.Close()
	metrics.Contains(t, metrics.Render(t, r), `nv_inference_count{model="m",version="1"} 2`)
	second.Close()
	if strings.Contains(metrics.Render(t, r), "nv_inference_count") {
		t.Error("still shown after both were closed")
	}
}

func TestCacheCountersAreShownForCachedModels(t *testing.T) {
	r := metrics.New(metrics.Config{Summaries: true})
	plain, cached := r.Model("m", 1, metrics.ModelOptions{}), r.Model("c", 1, metrics.ModelOptions{Cache: true})
	for _, m := range []*metrics.Model{plain, cached} {
		m.Success(2, metrics.Durations{Total: 5_000, Queue: 1_000})
	}
	cached.CacheMiss(2_999)
	cached.CacheHit(4_000, 0, 3_999)
	figures := metrics.CacheFigures{
		Used: 1, Size: 4, Entries: 5, Lookups: 6, Hits: 7, Misses: 8, Evictions: 9,
		LookupTime: 10999 * time.Nanosecond, InsertionTime: 11 * time.Microsecond,
	}
	r.Cache(func() metrics.CacheFigures { return figures })
	text := metrics.Render(t, r)
	labels := `{model="c",version="1"}`
	metrics.Contains(t, text,
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

// TestALoadMayChangeTagsAndCache checks that a version can be loaded with new tags or a cache while
// its previous load still exists.
func TestALoadMayChangeTagsAndCache(t *testing.T) {
	r := metrics.New(metrics.Config{})
	before := r.Model("m", 1, metrics.ModelOptions{})
	before.Success(1, metrics.Durations{})
	after := r.Model("m", 1, metrics.ModelOptions{Cache: true})
	after.CacheHit(1_000, 0, 1_000)
	tagged := r.Model("m", 1, metrics.ModelOptions{Tags: map[string]string{"team": "a"}})
	tagged.Success(1, metrics.Durations{})
	metrics.Contains(t, metrics.Render(t, r), `nv_inference_request_success{model="m",version="1"} 2`, `nv_cache_num_hits_per_model{model="m",version="1"} 1`,
		`nv_inference_request_success{_team="a",model="m",version="1"} 1`)
	for _, m := range []*metrics.Model{before, after, tagged} {
		m.Close()
	}
	if text := metrics.Render(t, r); strings.Contains(text, `model="m"`) {
		t.Errorf("still shown after all were closed:\n%s", text)
	}
}

// TestStrangeOptionsDoNotSpoilThePage checks that unusual tags and buckets of a config become valid
// labels and buckets.
func TestStrangeOptionsDoNotSpoilThePage(t *testing.T) {
	r := metrics.New(metrics.Config{Histograms: true})
	m := r.Model("m", 1, metrics.ModelOptions{
		Tags:          map[string]string{"a-b": "1", "a_b": "2", "__name__": "3", "é": "4\xff", "c": "5\n"},
		FirstResponse: []float64{5, 3, math.NaN(), 3, math.Inf(1)},
	})
	defer m.Close()
	m.FirstResponse(4_000_000)
	metrics.Contains(t, metrics.Render(t, r),
		`nv_inference_count{_="4�",_a_b="1",_c="5\n",_name__="3",model="m",version="1"} 0`,
		`nv_inference_first_response_histogram_ms_bucket{_="4�",_a_b="1",_c="5\n",_name__="3",model="m",version="1",le="3"} 0`,
		`nv_inference_first_response_histogram_ms_bucket{_="4�",_a_b="1",_c="5\n",_name__="3",model="m",version="1",le="5"} 1`,
	)
	other := r.Model("m", 1, metrics.ModelOptions{Tags: map[string]string{"a_b": "1", "_name__": "3", "é": "4\xff", "c": "5\n"}})
	defer other.Close()
	if other != m {
		t.Error("two loads that show the same labels count apart")
	}
}

func TestNoCountersHidesDurations(t *testing.T) {
	r := metrics.New(metrics.Config{NoCounters: true})
	m := r.Model("m", 1, metrics.ModelOptions{Cache: true})
	defer m.Close()
	m.Success(1, metrics.Durations{Total: 5000})
	m.CacheMiss(5000)
	m.Failure(metrics.ReasonOther)
	m.Execution()
	text := metrics.Render(t, r)
	metrics.Contains(t, text, `nv_inference_request_success{model="m",version="1"} 0`, `nv_inference_exec_count{model="m",version="1"} 0`)
	if strings.Contains(text, "duration_us") || strings.Contains(text, "nv_cache") {
		t.Errorf("duration counters are shown, or those of caches:\n%s", text)
	}
}

func TestServerCountersAreShown(t *testing.T) {
	r := metrics.New(metrics.Config{})
	r.StubStarted("m")
	r.StubLost("m", "exit")
	r.StubRestarted("m")
	r.ProtocolError("ring")
	r.Gauge("nereid_test_bytes", "A test", func() float64 { return 7 })
	metrics.Contains(t, metrics.Render(t, r), `nereid_stub_starts_total{model="m"} 1`, `nereid_stub_losses_total{cause="exit",model="m"} 1`,
		`nereid_stub_restarts_total{model="m"} 1`,
		`nereid_stub_protocol_errors_total{rule="ring"} 1`, "nereid_test_bytes 7")
}

func TestStagesAreShownAsHistograms(t *testing.T) {
	r := metrics.New(metrics.Config{AllBuckets: true})
	m := r.Model("m", 1, metrics.ModelOptions{Cache: true})
	defer m.Close()
	m.Success(1, metrics.Durations{Total: 61e9, Queue: 50_000, Input: 50_001, Infer: 2_000_000, Output: -5})
	m.CacheHit(1_000_000, 0, 999)
	text := metrics.Render(t, r)
	metrics.Contains(t, text,
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
	without := metrics.New(metrics.Config{NoStages: true})
	n := without.Model("m", 1, metrics.ModelOptions{Cache: true})
	defer n.Close()
	n.Success(1, metrics.Durations{Total: 1})
	n.CacheHit(1, 0, 1)
	if text := metrics.Render(t, without); strings.Contains(text, "nereid_inference_") {
		t.Errorf("stages are shown, which are not wanted:\n%s", text)
	}
}

// TestRequestsAreCountedWithoutAllocation checks that Success, which runs for each request, does
// not allocate.
func TestRequestsAreCountedWithoutAllocation(t *testing.T) {
	m := metrics.New(metrics.Config{}).Model("m", 1, metrics.ModelOptions{})
	defer m.Close()
	if n := testing.AllocsPerRun(100, func() { m.Success(1, metrics.Durations{Total: 1e6, Queue: 1e3}) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// TestTagsAndBucketsAreBounded checks that a model's config cannot make labels and histograms of
// any size.
func TestTagsAndBucketsAreBounded(t *testing.T) {
	var log strings.Builder
	r := metrics.New(metrics.Config{Histograms: true, Log: zerolog.New(&log)})
	tags := map[string]string{"a_long_one": strings.Repeat("x", 20_000)}
	buckets := make([]float64, 5000)
	for i := range buckets {
		tags[fmt.Sprintf("t%04d", i)] = "v"
		buckets[i] = float64(i)
	}
	m := r.Model("m", 1, metrics.ModelOptions{Tags: tags, FirstResponse: buckets})
	m.Success(1, metrics.Durations{})
	text := metrics.Render(t, r)
	line := text[strings.Index(text, "nv_inference_count{"):]
	line, _, _ = strings.Cut(line, "\n")
	if n := strings.Count(line, `="v"`); n != 64 || strings.Contains(line, "a_long_one") {
		t.Errorf("got %d tags in %s", n, line)
	}
	if n := strings.Count(text, "nv_inference_first_response_histogram_ms_bucket"); n != 1025 {
		t.Errorf("got %d buckets, want 1024 and the last", n)
	}
	if !strings.Contains(log.String(), "metrics omit 4937 metric_tags of model 'm': a model can have 64 with 16384 bytes") {
		t.Errorf("got log %s", &log)
	}
}
