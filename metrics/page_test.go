package metrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/metrics"
)

// TestThePageIsThatOfTheFile compares the page with testdata/page.txt. The models have tags,
// namespaces, a cache and GPUs, so that all families are shown.
func TestThePageIsThatOfTheFile(t *testing.T) {
	r := metrics.New(metrics.Config{Summaries: true, Histograms: true, AllBuckets: true, PinnedPoolBytes: 1 << 28, Quantiles: map[float64]float64{0.5: 0.05}})
	r.StubStarted("b")
	r.StubLost("b", "exit")
	r.ProtocolError("ring")
	r.Gauge("nereid_memory_limit_bytes", "What may be taken", func() float64 { return 1e12 })
	r.GPUs(func() []metrics.GPU { return []metrics.GPU{{UUID: "GPU-a", Utilization: new(float64)}} })
	r.Processes(func() []metrics.Process {
		return []metrics.Process{
			{Model: "b", Version: 1, Instance: "b_0_1", CPU: 1230 * time.Millisecond, Resident: 4096, Arena: 1, Lent: 2},
			{Model: "b", Version: 1, Instance: "b_0_0", CPU: time.Second, Resident: 8192, Arena: 3},
			{Model: "a", Namespace: "/left", Version: 2, Instance: "a_0_0", GPU: "GPU-a", CPU: 1, Resident: 1e10, Arena: 5},
		}
	})
	tagged := r.Model("b", 1, metrics.ModelOptions{Tags: map[string]string{"team": "a\"b\\"}})
	cached := r.Model("a", 2, metrics.ModelOptions{Namespace: "/left", Cache: true})
	for i, m := range []*metrics.Model{tagged, tagged.OnGPU("GPU-a"), cached, r.Model("b", 2, metrics.ModelOptions{})} {
		n := int64(i + 1)
		m.Success(n, metrics.Durations{Total: n * 61e9, Queue: n * 50_000, Input: 50_001, Infer: 2_000_000, Output: 5})
		m.Execution()
		m.Pending(i)
		m.Failure(metrics.Reason(i))
		m.FirstResponse(n * 150e6)
		m.Loaded(time.Duration(n) * 1234567891)
	}
	cached.CacheHit(3e6, 2e6, 1e6)
	cached.CacheMiss(7e6)
	h := r.Custom("b")
	metrics.Must(t, h.NewFamily(1, "of_a_model", "Of\na model", metrics.Histogram))
	metrics.Must(t, h.NewMetric(1, 2, [][2]string{{"x", "1"}}, []float64{0.5, 1e20}))
	metrics.Must(t, h.Apply(2, metrics.Observe, 0.25))
	var page []string
	for line := range strings.Lines(metrics.Render(t, r)) {
		if !strings.Contains(line, metrics.InternalErrorsName) { // other tests change these counts
			page = append(page, line)
		}
	}
	const file = "testdata/page.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(strings.Join(page, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(want), "\n")
	for i := range max(len(lines)-1, len(page)) {
		if i >= len(page) || i >= len(lines) || page[i] != lines[i] {
			t.Fatalf("line %d of %d: got %q, want %q as in %s", i+1, len(page), at(page, i), at(lines, i), file)
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "no line"
}

// TestIdleVersionsHaveTritonsMetricsAlone checks that a version without requests shows only
// Triton's metrics and those of its processes.
func TestIdleVersionsHaveTritonsMetricsAlone(t *testing.T) {
	r := metrics.New(metrics.Config{})
	defer r.Model("idle", 1, metrics.ModelOptions{}).Close()
	busy := r.Model("busy", 1, metrics.ModelOptions{Cache: true})
	defer busy.Close()
	r.Processes(func() []metrics.Process {
		return []metrics.Process{{Model: "idle", Version: 1, Instance: "idle_0_0", Resident: 1}, {Model: "busy", Version: 1, Instance: "busy_0_0", Resident: 1, Arena: 1}}
	})
	ours := func(model string) (list []string) {
		for line := range strings.Lines(metrics.Render(t, r)) {
			if name, labels, _ := strings.Cut(line, "{"); strings.HasPrefix(name, "nereid_") && strings.Contains(labels, `model="`+model+`"`) {
				if len(list) == 0 || list[len(list)-1] != name {
					list = append(list, name)
				}
			}
		}
		return list
	}
	want := []string{"nereid_instance_cpu_seconds_total", "nereid_instance_resident_bytes"}
	if got := ours("idle"); !slices.Equal(got, want) {
		t.Errorf("an idle version has %q, want %q", got, want)
	}
	before := metrics.Render(t, r)
	metrics.Contains(t, before, `nv_inference_request_success{model="idle",version="1"} 0`, `nv_inference_request_failure{model="idle",reason="OTHER",version="1"} 0`,
		`nv_inference_pending_request_count{model="idle",version="1"} 0`, `nv_inference_queue_duration_us{model="idle",version="1"} 0`)
	if strings.Contains(before, "nereid_inference_") {
		t.Errorf("families without samples are shown:\n%s", before)
	}
	busy.CacheHit(1e6, 0, 1e6)
	if got := ours("busy"); !slices.Contains(got, "nereid_inference_request_seconds_bucket") || slices.Contains(got, "nereid_inference_queue_seconds_bucket") {
		t.Errorf("a version that the cache has answered for has %q, want the histogram of requests alone", got)
	}
	busy.Success(1, metrics.Durations{})
	if got := ours("busy"); len(got) != 3+5*3 {
		t.Errorf("a version that has executed has %q, want all five histograms", got)
	}
	if got := ours("idle"); !slices.Equal(got, want) {
		t.Errorf("an idle version has %q beside a busy one, want %q", got, want)
	}
}

// TestAllVersionsShowTheSameBuckets checks that all versions show the same buckets for a
// stage. Otherwise a sum over versions would count some requests twice and others not at all.
func TestAllVersionsShowTheSameBuckets(t *testing.T) {
	r := metrics.New(metrics.Config{})
	for i, name := range []string{"short", "long", "between"} {
		m := r.Model(name, 1, metrics.ModelOptions{})
		defer m.Close()
		ns := [...]int64{1, 100e9, 20e6}[i]
		m.Success(1, metrics.Durations{ns, ns, ns, ns, ns})
	}
	bounds := make(map[string]map[string][]string)
	for line := range strings.Lines(metrics.Render(t, r)) {
		sample, _, _ := strings.Cut(line, " ")
		name, labels, ok := strings.Cut(sample, "_bucket{")
		if !ok {
			continue
		}
		model, le, _ := strings.Cut(labels, ",version")
		_, le, _ = strings.Cut(le, "le=")
		if bounds[name] == nil {
			bounds[name] = make(map[string][]string)
		}
		bounds[name][model] = append(bounds[name][model], le)
	}
	for name, want := range map[string]int{
		"nereid_inference_request_seconds": 20, "nereid_inference_queue_seconds": 14, "nereid_inference_compute_infer_seconds": 14,
		"nereid_inference_compute_input_seconds": 6, "nereid_inference_compute_output_seconds": 6,
	} {
		if len(bounds[name]) != 3 {
			t.Errorf("%s is shown of %d versions, want 3", name, len(bounds[name]))
		}
		for model, got := range bounds[name] {
			if len(got) != want || !slices.Equal(got, bounds[name][`model="long"`]) || got[want-1] != `"+Inf"}` {
				t.Errorf("%s of %s has the buckets %q, want %d of them, the same for all and +Inf behind", name, model, got, want)
			}
		}
	}
}

// stuck is an http.ResponseWriter whose first write blocks until taken is closed. Each write
// returns err.
type stuck struct {
	header       http.Header
	begun, taken chan struct{} // Write closes begun, and the test closes taken
	err          error
	writes       []int
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}

func (s *stuck) Write(b []byte) (int, error) {
	if s.writes = append(s.writes, len(b)); len(s.writes) == 1 {
		close(s.begun)
		<-s.taken
	}
	return len(b), s.err
}

// TestAClientThatReadsSlowlyHoldsOnePiece checks that while a slow client reads the page, models
// are added and counted, other clients read the page, and the server buffers only one piece.
func TestAClientThatReadsSlowlyHoldsOnePiece(t *testing.T) {
	for _, failure := range []error{nil, errors.New("the client has gone")} {
		r := metrics.New(metrics.Config{})
		r.Processes(func() []metrics.Process { return []metrics.Process{{Model: "x", Instance: "x_0"}} })
		h := r.Custom("m")
		metrics.Must(t, h.NewFamily(1, "of_a_model", "", metrics.Counter))
		metrics.Must(t, h.NewMetric(1, 2, nil, nil))
		for i := range 1000 {
			defer r.Model(strings.Repeat("m", i%50), int64(i), metrics.ModelOptions{}).Close()
		}
		page := r.Handler()
		slow := &stuck{header: http.Header{}, begun: make(chan struct{}), taken: make(chan struct{}), err: failure}
		done := make(chan struct{}) // closed when the page has been written
		go func() {
			defer close(done)
			page.ServeHTTP(slow, httptest.NewRequest("GET", "/metrics", nil))
		}()
		<-slow.begun
		m := r.Model("late", 1, metrics.ModelOptions{})
		m.OnGPU("GPU-a").Success(1, metrics.Durations{})
		metrics.Must(t, h.NewMetric(1, 3, [][2]string{{"late", "1"}}, nil))
		metrics.Contains(t, metrics.Render(t, r), `nv_inference_count{gpu_uuid="GPU-a",model="late",version="1"} 1`, `of_a_model{late="1"} 0`)
		m.Close()
		close(slow.taken)
		<-done
		longest := slices.Max(slow.writes)
		if longest > 66<<10 {
			t.Errorf("a piece has %d bytes, want 64 KiB and a line at most", longest)
		}
		if failure == nil && len(slow.writes) < 5 || failure != nil && len(slow.writes) != 1 {
			t.Errorf("the page of %d models was written in %d pieces with the error %v, want many, or one if it fails", 1000, len(slow.writes), failure)
		}
	}
}

// TestAPanicLosesOneFamily checks that a panic while one family is rendered leaves the rest of the
// page intact.
func TestAPanicLosesOneFamily(t *testing.T) {
	r := metrics.New(metrics.Config{})
	defer r.Model("m", 1, metrics.ModelOptions{}).Close()
	r.Processes(func() []metrics.Process { panic("for the page") })
	metrics.Contains(t, metrics.Render(t, r), `nv_inference_count{model="m",version="1"} 0`, "nv_pinned_memory_pool_total_bytes 0")
}
