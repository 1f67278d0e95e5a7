package metrics

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
)

func TestCustomMetricsRefuseBadNames(t *testing.T) {
	r := New(Config{CPU: true, Summaries: true})
	r.Gauge("nereid_test_bytes", "A test", func() float64 { return 7 })
	h := r.Custom("m")
	for _, name := range []string{"", "1a", "a b", "a-b", "é", "__x", "a.b"} {
		WantText(t, h.NewFamily(1, name, "", Counter), "Invalid metric name")
	}
	for _, name := range []string{"nv_inference_count", "nv_cpu_utilization", "nv_inference_request_summary_us_sum", "nereid_test_bytes", "nereid_stub_starts_total"} {
		WantText(t, h.NewFamily(1, name, "", Counter), "is a metric of the server itself")
	}
	Must(t, h.NewFamily(1, "f", "first", Counter))
	WantText(t, h.NewFamily(2, "f", "", Gauge), "Family name already exists with different type")
	Must(t, h.NewFamily(2, "h", "", Histogram))
	for _, label := range []string{"", "1a", "a:b", "a-b", "__a", "é"} {
		WantText(t, h.NewMetric(1, 1, [][2]string{{label, "x"}}, nil), "Invalid label name")
	}
	WantText(t, h.NewMetric(2, 1, [][2]string{{"le", "x"}}, nil), "Invalid label name")
	Must(t, h.NewMetric(1, 1, [][2]string{{"le", "x"}}, nil))
	for _, buckets := range [][]float64{{1, 1}, {2, 1}, {math.NaN()}, {1, math.NaN()}} {
		WantText(t, h.NewMetric(2, 2, nil, buckets), "Bucket Boundaries must be strictly sorted")
	}
	WantText(t, h.NewMetric(2, 2, nil, make([]float64, maxCustomBuckets+1)), "buckets")
	WantText(t, h.NewMetric(1, 2, [][2]string{{"a", strings.Repeat("x", maxCustomLabel+1)}}, nil), "label")
	WantText(t, h.NewMetric(1, 2, make([][2]string, maxCustomLabels+1), nil), "labels")
	WantText(t, h.NewFamily(3, strings.Repeat("x", maxCustomName+1), "", Gauge), "name")
	off := New(Config{NoCustom: true}).Custom("m")
	WantText(t, off.NewFamily(1, "f", "", Counter), "metrics not supported")
	off.End(true)
}

func TestCustomMetricsAreBounded(t *testing.T) {
	r := New(Config{ModelSeries: 10, Series: 14})
	h := r.Custom("m")
	Must(t, h.NewFamily(1, "f", "", Gauge))
	Must(t, h.NewFamily(2, "h", "", Histogram))
	label := func(i int) [][2]string { return [][2]string{{"i", fmt.Sprint(i)}} }
	for i := range 4 {
		Must(t, h.NewMetric(1, uint64(i+1), label(i), nil))
	}
	Must(t, h.NewMetric(2, 5, nil, []float64{1, 2, 3})) // has six samples
	WantText(t, h.NewMetric(1, 6, label(6), nil), "model 'm' has 10 series of custom metrics, more would be beyond the limit (--metrics-config=custom_series_per_model=10)")
	Must(t, h.NewMetric(1, 6, label(0), nil)) // exists already
	other := r.Custom("n")
	Must(t, other.NewFamily(1, "f", "", Gauge))
	for i := range 4 {
		Must(t, other.NewMetric(1, uint64(i+1), label(10+i), nil))
	}
	WantText(t, other.NewMetric(1, 5, label(20), nil), "(--metrics-config=custom_series=14)")
	Must(t, other.NewMetric(1, 6, label(0), nil)) // exists already
	Must(t, h.DropFamily(2))
	Must(t, other.NewMetric(1, 5, label(20), nil))
	Must(t, h.NewMetric(1, 7, label(7), nil))
	h.End(false)
	other.End(false)
	c := r.custom
	if c.series != 0 || len(c.families) != 0 || len(c.accounts) != 0 {
		t.Errorf("left: %d series, %d families, %d accounts", c.series, len(c.families), len(c.accounts))
	}

	// The numbers of families and metrics of one process are limited too, and so are their bytes.
	h = r.Custom("m")
	for i := range 10 {
		Must(t, h.NewFamily(uint64(i+1), "f", "", Gauge))
		Must(t, h.NewMetric(uint64(i+1), uint64(i+1), nil, nil))
	}
	WantText(t, h.NewFamily(11, "f", "", Gauge), "metric families in one process")
	WantText(t, h.NewMetric(1, 11, nil, nil), "metrics in one process")
	h.End(false)
	r = New(Config{})
	h = r.Custom("m")
	Must(t, h.NewFamily(1, "f", "", Gauge))
	var err error
	for i := 0; err == nil; i++ {
		err = h.NewMetric(1, uint64(i+1), [][2]string{{"i", fmt.Sprintf("%08000d", i)}}, nil)
	}
	WantText(t, err, "bytes")
}

// TestCustomMetricsCountUnderStorm creates, increments, drops and renders shared series from many
// goroutines, and checks that no increment is lost and no series remains.
func TestCustomMetricsCountUnderStorm(t *testing.T) {
	r := New(Config{})
	const lives, rounds = 8, 300
	var all sync.WaitGroup
	keeper := r.Custom("keeper")
	Must(t, keeper.NewFamily(1, "f", "", Counter))
	Must(t, keeper.NewMetric(1, 1, nil, nil))
	for n := range lives {
		all.Go(func() {
			h := r.Custom(fmt.Sprint("m", n%3))
			defer h.End(false)
			for i := range uint64(rounds) {
				if err := errors.Join(
					h.NewFamily(i, "f", "", Counter), h.NewMetric(i, 2*i+1, nil, nil), h.Apply(2*i+1, Increment, 1),
					h.NewMetric(i, 2*i+2, [][2]string{{"n", fmt.Sprint(n, i%7)}}, nil), h.Apply(2*i+2, Increment, 1), h.DropFamily(i),
				); err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() { Render(t, r) })
	}
	all.Wait()
	if v, _, _ := keeper.Value(1); v != lives*rounds {
		t.Errorf("got %v, want %d", v, lives*rounds)
	}
	keeper.End(false)
	if r.custom.series != 0 {
		t.Errorf("%d series are left", r.custom.series)
	}
}

// TestBytesOfAllModelsAreBounded checks that the models together have a limit, and that unloaded
// models make room for others.
func TestBytesOfAllModelsAreBounded(t *testing.T) {
	r := New(Config{})
	text := strings.Repeat("d", maxCustomDescription)
	number := uint64(0)
	add := func(h *Holder) error {
		number++
		return h.NewFamily(number, fmt.Sprintf("f%d", number), text, Gauge)
	}
	var err error
	var first, last *Holder
	for model := 0; err == nil; model++ {
		if last = r.Custom(fmt.Sprint("m", model)); first == nil {
			first = last
		}
		for range 500 {
			if err = add(last); err != nil {
				break
			}
		}
	}
	WantText(t, err, "of all models have")
	if n := r.custom.bytes; n > maxCustomBytes || n < maxCustomBytes-2*maxCustomDescription {
		t.Errorf("got %d bytes, want about %d", n, maxCustomBytes)
	}
	first.End(true)
	Must(t, add(last))
	if n := r.custom.bytes; n > maxCustomBytes-400*maxCustomDescription || r.custom.accounts["m0"] != nil {
		t.Errorf("got %d bytes, want those of an unloaded model removed", n)
	}
	last.End(false)
	Must(t, add(r.Custom("another")))
}
