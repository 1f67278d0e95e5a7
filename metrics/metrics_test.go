package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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

func TestModelCounters(t *testing.T) {
	r := New(Config{Summaries: true, Histograms: true, PinnedPoolBytes: 42})
	m := r.Model("m", 3, ModelOptions{Tags: map[string]string{"team": "a"}})
	plain := r.Model("n", 1, ModelOptions{})
	m.Success(4, Durations{Total: 9_999_999, Queue: 1_000, Input: 999, Infer: 5_000, Output: 2_001})
	m.Execution()
	m.Failure(ReasonCanceled)
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

func TestWithoutCounters(t *testing.T) {
	r := New(Config{NoCounters: true})
	m := r.Model("m", 1, ModelOptions{})
	defer m.Close()
	m.Success(1, Durations{Total: 5000})
	m.Failure(ReasonOther)
	m.Execution()
	text := render(t, r)
	contains(t, text, `nv_inference_request_success{model="m",version="1"} 0`, `nv_inference_exec_count{model="m",version="1"} 0`)
	if strings.Contains(text, "duration_us") {
		t.Errorf("duration counters are shown:\n%s", text)
	}
}

func TestOwnCounters(t *testing.T) {
	r := New(Config{})
	r.StubStarted("m")
	r.StubLost("m")
	r.ProtocolError("ring")
	r.Gauge("nereid_test_bytes", "A test", func() float64 { return 7 })
	contains(t, render(t, r), `nereid_stub_starts_total{model="m"} 1`, `nereid_stub_losses_total{model="m"} 1`,
		`nereid_stub_protocol_errors_total{rule="ring"} 1`, "nereid_test_bytes 7")
}

func TestMachine(t *testing.T) {
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
