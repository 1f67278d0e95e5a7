package statistics_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/statistics"
	"github.com/nereid-serving/nereid/scheduler"
)

// written returns a duration as "count/ns".
func written(d *kserve.StatisticDuration) string {
	return fmt.Sprintf("%d/%d", d.GetCount(), d.GetNs())
}

// shown returns all numbers of the statistics, except times that depend on the clock.
func shown(m *kserve.ModelStatistics) string {
	s := m.GetInferenceStats()
	text := fmt.Sprintf("inferences %d executions %d success %s fail %s queue %s compute %s %s %s cache %s %s",
		m.GetInferenceCount(), m.GetExecutionCount(), written(s.GetSuccess()), written(s.GetFail()), written(s.GetQueue()),
		written(s.GetComputeInput()), written(s.GetComputeInfer()), written(s.GetComputeOutput()), written(s.GetCacheHit()), written(s.GetCacheMiss()))
	for _, b := range m.GetBatchStats() {
		text += fmt.Sprintf(" batch %d %s %s %s", b.GetBatchSize(), written(b.GetComputeInput()), written(b.GetComputeInfer()), written(b.GetComputeOutput()))
	}
	return text
}

func TestExecutionsAreCountedWithTheirTimes(t *testing.T) {
	// Two requests were accepted at 100 and 200 and queued at 110 and 210; their batch starts at
	// 1000.
	requests := []scheduler.Timing{{BatchSize: 3, Start: 100, Queued: 110}, {Start: 200, Queued: 210}}
	report := func(change func(*backend.Report)) *scheduler.Execution {
		e := &scheduler.Execution{
			Requests: requests,
			Report:   backend.Report{Start: 1000, ComputeStart: 1010, ComputeEnd: 1200, End: 1203, Executed: true},
		}
		change(&e.Report)
		return e
	}
	for _, test := range []struct {
		name, want, metrics string
		do                  func(*statistics.Version)
	}{
		{"nothing", "inferences 0 executions 0 success 0/0 fail 0/0 queue 0/0 compute 0/0 0/0 0/0 cache 0/0 0/0", "success 0 inferences 0 executions 0",
			func(*statistics.Version) {}},
		{
			"a batch", "inferences 4 executions 1 success 2/2106 fail 0/0 queue 2/1680 compute 2/20 2/380 2/6 cache 0/0 0/0 batch 4 1/10 1/190 1/3",
			"success 2 inferences 4 executions 1",
			func(s *statistics.Version) { s.Executed(report(func(*backend.Report) {})) },
		},
		{
			"a batch that failed", "inferences 0 executions 1 success 0/0 fail 2/2106 queue 0/0 compute 0/0 0/0 0/0 cache 0/0 0/0 batch 4 1/10 1/190 1/3",
			"success 0 inferences 0 executions 1 BACKEND 2",
			func(s *statistics.Version) { s.Executed(report(func(r *backend.Report) { r.Err = errors.New("x") })) },
		},
		{
			"a batch that never came to the model", "inferences 0 executions 0 success 0/0 fail 2/2106 queue 0/0 compute 0/0 0/0 0/0 cache 0/0 0/0",
			"success 0 inferences 0 executions 0 BACKEND 2",
			func(s *statistics.Version) {
				s.Executed(report(func(r *backend.Report) { r.Err, r.Executed = errors.New("x"), false }))
			},
		},
		{
			"one request of a batch that failed",
			"inferences 1 executions 1 success 1/1003 fail 1/1103 queue 1/790 compute 1/10 1/190 1/3 cache 0/0 0/0 batch 4 1/10 1/190 1/3",
			"success 1 inferences 1 executions 1 BACKEND 1",
			func(s *statistics.Version) { s.Executed(report(func(r *backend.Report) { r.Failed = []int{0} })) },
		},
		{
			"the other request that failed",
			"inferences 3 executions 1 success 1/1103 fail 1/1003 queue 1/890 compute 1/10 1/190 1/3 cache 0/0 0/0 batch 4 1/10 1/190 1/3",
			"success 1 inferences 3 executions 1 BACKEND 1",
			func(s *statistics.Version) { s.Executed(report(func(r *backend.Report) { r.Failed = []int{1} })) },
		},
		{
			"the cache", "inferences 0 executions 0 success 1/107 fail 0/0 queue 1/0 compute 0/0 0/0 0/0 cache 1/50 1/7", "success 1 inferences 0 executions 0",
			func(s *statistics.Version) {
				s.CacheHit(100, 50)
				s.CacheMiss(7)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := metrics.New(metrics.Config{})
			m := r.Model("m", 1, metrics.ModelOptions{Cache: true})
			defer m.Close()
			s := statistics.New("m", 1, m, nil)
			test.do(s)
			if got := shown(s.Proto()); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got := counted(r); got != test.metrics {
				t.Errorf("metrics: got %q, want %q", got, test.metrics)
			}
		})
	}
}

// counted returns the counts in the metrics, and those of failure reasons that are not 0.
func counted(r *metrics.Registry) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	value := func(name string) string {
		_, rest, _ := strings.Cut(w.Body.String(), "\n"+name+" ")
		number, _, _ := strings.Cut(rest, "\n")
		return number
	}
	const labels = `{model="m",version="1"}`
	text := fmt.Sprintf("success %s inferences %s executions %s", value("nv_inference_request_success"+labels),
		value("nv_inference_count"+labels), value("nv_inference_exec_count"+labels))
	for _, reason := range []string{"REJECTED", "CANCELED", "BACKEND", "OTHER"} {
		if n := value(`nv_inference_request_failure{model="m",reason="` + reason + `",version="1"}`); n != "0" {
			text += " " + reason + " " + n
		}
	}
	return text
}

func TestFailuresAreCountedByReason(t *testing.T) {
	for reason, want := range map[scheduler.Reason]string{
		scheduler.Rejected: "REJECTED", scheduler.Canceled: "CANCELED", scheduler.BackendFailure: "BACKEND", scheduler.OtherFailure: "OTHER",
	} {
		r := metrics.New(metrics.Config{})
		m := r.Model("m", 1, metrics.ModelOptions{})
		s := statistics.New("m", 1, m, nil)
		s.Failed(reason, backend.Now()-1000)
		if got, want := counted(r), "success 0 inferences 0 executions 0 "+want+" 1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if fail := s.Proto().GetInferenceStats().GetFail(); fail.GetCount() != 1 || fail.GetNs() < 1000 {
			t.Errorf("got fail %v, want 1 of 1000 ns or more", fail)
		}
		m.Close()
	}
}

// TestBatchesWithoutMemoryAreNoFailuresOfTheBackend checks the reason of batches for which the
// server has no memory. It rejects them before the model runs.
func TestBatchesWithoutMemoryAreNoFailuresOfTheBackend(t *testing.T) {
	for want, report := range map[string]backend.Report{
		"OTHER 2":   {Err: &infer.Error{Code: infer.Unavailable, OutOfMemory: true}},
		"BACKEND 2": {Err: &infer.Error{Code: infer.Unavailable}},
	} {
		r := metrics.New(metrics.Config{})
		m := r.Model("m", 1, metrics.ModelOptions{})
		statistics.New("m", 1, m, nil).Executed(&scheduler.Execution{Requests: make([]scheduler.Timing, 2), Report: report})
		if got, want := counted(r), "success 0 inferences 0 executions 0 "+want; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		m.Close()
	}
}

// TestExecutionsCountForTheirGPU checks the counts of executions on a GPU in the config, on one
// added later and on no GPU.
func TestExecutionsCountForTheirGPU(t *testing.T) {
	r := metrics.New(metrics.Config{})
	m := r.Model("m", 1, metrics.ModelOptions{})
	defer m.Close()
	s := statistics.New("m", 1, m, nil)
	s.CountGPUs([]int32{0}, func(gpu int32) string { return fmt.Sprint("GPU-", gpu) })
	for gpu, times := range map[int32]int{0: 1, 1: 2, 4: 3} {
		for range times {
			s.Executed(&scheduler.Execution{Requests: []scheduler.Timing{{}}, Report: backend.Report{Executed: true, GPU: gpu}})
		}
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`nv_inference_count{model="m",version="1"} 1`, `nv_inference_count{gpu_uuid="GPU-0",model="m",version="1"} 2`,
		`nv_inference_exec_count{gpu_uuid="GPU-3",model="m",version="1"} 3`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, w.Body)
		}
	}
	if n := s.Proto().GetInferenceCount(); n != 6 {
		t.Errorf("the version has %d inferences, want 6", n)
	}
}

// TestBatchSizesAreBounded executes more batch sizes than the statistics keep and checks that the
// rest is only counted in total.
func TestBatchSizesAreBounded(t *testing.T) {
	s := statistics.New("m", 1, metrics.New(metrics.Config{}).Model("m", 1, metrics.ModelOptions{}), nil)
	for size := range int64(statistics.MostBatchSizes + 10) {
		s.Executed(&scheduler.Execution{Requests: []scheduler.Timing{{BatchSize: size + 1}}, Report: backend.Report{Executed: true}})
	}
	m := s.Proto()
	if n := len(m.GetBatchStats()); n != statistics.MostBatchSizes || m.GetExecutionCount() != statistics.MostBatchSizes+10 {
		t.Errorf("%d executions are counted by %d sizes, want %d by %d", m.GetExecutionCount(), n, statistics.MostBatchSizes+10, statistics.MostBatchSizes)
	}
}
