package metrics_test

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/metrics"
)

func TestFiguresSumTheWorkOfAVersion(t *testing.T) {
	r := metrics.New(metrics.Config{})
	m := r.Model("m", 3, metrics.ModelOptions{Cache: true})
	gpu := m.OnGPU("GPU-1")
	tagged := r.Model("m", 3, metrics.ModelOptions{Tags: map[string]string{"team": "a"}})
	other := r.Model("m", 4, metrics.ModelOptions{})
	m.Success(4, metrics.Durations{Total: 60_000, Queue: 1_000, Infer: 40_000})
	gpu.Success(2, metrics.Durations{Total: 2e9})
	gpu.Execution()
	tagged.Success(1, metrics.Durations{Total: 1e12})
	m.Failure(metrics.ReasonRejected)
	gpu.Failure(metrics.ReasonRejected)
	m.CacheMiss(10)
	m.Pending(3)
	m.Loaded(time.Second)
	list := r.Figures()
	if len(list) != 2 || list[0].Model != "m" || list[0].Version != 3 || list[1].Version != 4 {
		t.Fatalf("got %+v, want versions 3 and 4 of m", list)
	}
	f := list[0]
	if f.Succeeded != 3 || f.Inferences != 7 || f.Executions != 1 || f.Failed["REJECTED"] != 2 || len(f.Failed) != 1 || f.CacheMisses != 1 || f.Pending != 3 || f.Load != time.Second {
		t.Errorf("got %+v", f)
	}
	total := f.Stages[0]
	if total.Counts[1] != 1 || total.Counts[14] != 1 || total.Counts[len(total.Counts)-1] != 1 || total.Sum != 60*time.Microsecond+2*time.Second+1000*time.Second {
		t.Errorf("got the times %+v, want one up to 100 µs, one up to 2.5 s and one above all bounds", total)
	}
	if bounds := metrics.StageBounds(); len(bounds) != len(total.Counts)-1 || bounds[1] != 100*time.Microsecond || bounds[14] != 2500*time.Millisecond {
		t.Errorf("got the bounds %v", bounds)
	}
	for _, used := range []*metrics.Model{m, tagged, other} {
		used.Close()
	}
	if list := r.Figures(); len(list) != 0 {
		t.Errorf("got %+v after the end, want none", list)
	}
	off := metrics.New(metrics.Config{NoStages: true})
	off.Model("m", 1, metrics.ModelOptions{})
	if f := off.Figures()[0]; f.Stages != nil {
		t.Errorf("got histograms, which are switched off")
	}
}
