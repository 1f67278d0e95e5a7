package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/metrics/exposition"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantText wants an error for the model with that text in it.
func wantText(t *testing.T, err error, text string) {
	t.Helper()
	var own *Refusal
	if !errors.As(err, &own) || !strings.Contains(own.Text, text) {
		t.Errorf("got error %v, want a Refusal with %q", err, text)
	}
}

func TestCustomMetricsAreShown(t *testing.T) {
	r := New(Config{})
	h := r.Custom("m")
	must(t, h.NewFamily(1, "hits", "what \\ was\nhit", Counter))
	must(t, h.NewFamily(2, "level", "", Gauge))
	must(t, h.NewFamily(3, "size:bytes", "sizes", Histogram))
	must(t, h.NewFamily(4, "empty", "never shown", Counter))
	must(t, h.NewMetric(1, 1, [][2]string{{"z", "a\"b\\c\nd"}, {"a", "ü"}}, nil))
	must(t, h.NewMetric(2, 2, nil, nil))
	must(t, h.NewMetric(3, 3, [][2]string{{"a", "b"}}, []float64{0.1, 1, 10, 1e7}))
	must(t, h.NewMetric(3, 4, nil, nil))
	must(t, h.NewMetric(3, 5, [][2]string{{"a", "inf"}}, []float64{1, math.Inf(1)}))
	for _, v := range []float64{0.1, 0.5, 5, 100, 1e9} {
		must(t, h.Apply(3, Observe, v))
	}
	must(t, h.Apply(4, Observe, 3))
	must(t, h.Apply(1, Increment, 1e6))
	must(t, h.Apply(2, Set, 2.5))
	must(t, h.Apply(2, Increment, -5))
	text := render(t, r)
	contains(t, text,
		`# HELP hits what \\ was\nhit`, "# TYPE hits counter", `hits{a="ü",z="a\"b\\c\nd"} 1000000`,
		"# TYPE level gauge", "level -2.5",
		"# HELP size:bytes sizes", "# TYPE size:bytes histogram",
		`size:bytes_count{a="b"} 5`, `size:bytes_sum{a="b"} 1000000105.6`, `size:bytes_bucket{a="b",le="0.1"} 1`,
		`size:bytes_bucket{a="b",le="1"} 2`, `size:bytes_bucket{a="b",le="10"} 3`, `size:bytes_bucket{a="b",le="10000000"} 4`,
		`size:bytes_bucket{a="b",le="+Inf"} 5`,
		"size:bytes_count 1", "size:bytes_sum 3", `size:bytes_bucket{le="+Inf"} 1`,
	)
	if strings.Contains(text, "# HELP level") || strings.Contains(text, "empty") {
		t.Errorf("a family without description has HELP, or one without metrics is shown:\n%s", text)
	}
	if n := strings.Count(text, `{a="inf",le="+Inf"}`); n != 1 {
		t.Errorf("the last bucket is shown %d times, want 1", n)
	}
	if v, known, err := h.Value(2); v != -2.5 || !known || err != nil {
		t.Errorf("Value: got %v, %v, %v", v, known, err)
	}
}

// TestSamplesAreThoseOfThePage: counters and gauges that models have made.
func TestSamplesAreThoseOfThePage(t *testing.T) {
	r := New(Config{})
	h := r.Custom("m")
	must(t, h.NewFamily(1, "blocks", "", Gauge))
	must(t, h.NewFamily(2, "sizes", "", Histogram))
	must(t, h.NewMetric(1, 1, [][2]string{{"kind", "used"}, {"a", "x\"y"}}, nil))
	must(t, h.NewMetric(1, 2, [][2]string{{"kind", "max"}}, nil))
	must(t, h.NewMetric(2, 3, nil, []float64{1}))
	must(t, h.Apply(1, Set, 1.5))
	must(t, h.Apply(2, Set, 1e17))
	want := []Sample{{`a="x\"y",kind="used"`, "1.5"}, {`kind="max"`, "1e+17"}}
	if got := r.Samples("blocks"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, family := range []string{"sizes", "none"} {
		if got := r.Samples(family); len(got) > 0 {
			t.Errorf("%s: got %q, want none", family, got)
		}
	}
}

// TestNumbersAreWrittenAsTritonWrites compares with what Triton's exposition shows of these.
func TestNumbersAreWrittenAsTritonWrites(t *testing.T) {
	for _, tt := range []struct {
		value float64
		want  string
	}{
		{0, "0"}, {math.Copysign(0, -1), "-0"}, {1, "1"}, {1e6, "1000000"}, {123456789, "123456789"}, {1e15, "1000000000000000"},
		{1e16, "1e+16"}, {1e20, "1e+20"}, {1e300, "1e+300"}, {0.1, "0.1"}, {1. / 3, "0.3333333333333333"}, {1e-5, "1e-05"},
		{1e-4, "0.0001"}, {1.5e-7, "1.5e-07"}, {1234567.891, "1234567.891"}, {1 << 53, "9007199254740992"}, {-5, "-5"},
		{math.NaN(), "Nan"}, {math.Inf(1), "+Inf"}, {math.Inf(-1), "-Inf"},
		// Where Triton's 16 digits would be another number.
		{12345678901234568, "1.2345678901234568e+16"}, {math.Nextafter(0.3, 1), "0.30000000000000004"},
	} {
		if got := string(exposition.AppendNumber(nil, tt.value)); got != tt.want {
			t.Errorf("%g: got %q, want %q", tt.value, got, tt.want)
		}
	}
}

func TestCustomMetricsRefuseBadNames(t *testing.T) {
	r := New(Config{CPU: true, Summaries: true})
	r.Gauge("nereid_test_bytes", "A test", func() float64 { return 7 })
	h := r.Custom("m")
	for _, name := range []string{"", "1a", "a b", "a-b", "é", "__x", "a.b"} {
		wantText(t, h.NewFamily(1, name, "", Counter), "Invalid metric name")
	}
	for _, name := range []string{"nv_inference_count", "nv_cpu_utilization", "nv_inference_request_summary_us_sum", "nereid_test_bytes", "nereid_stub_starts_total"} {
		wantText(t, h.NewFamily(1, name, "", Counter), "is a metric of the server itself")
	}
	must(t, h.NewFamily(1, "f", "first", Counter))
	wantText(t, h.NewFamily(2, "f", "", Gauge), "Family name already exists with different type")
	must(t, h.NewFamily(2, "h", "", Histogram))
	for _, label := range []string{"", "1a", "a:b", "a-b", "__a", "é"} {
		wantText(t, h.NewMetric(1, 1, [][2]string{{label, "x"}}, nil), "Invalid label name")
	}
	wantText(t, h.NewMetric(2, 1, [][2]string{{"le", "x"}}, nil), "Invalid label name")
	must(t, h.NewMetric(1, 1, [][2]string{{"le", "x"}}, nil))
	for _, buckets := range [][]float64{{1, 1}, {2, 1}, {math.NaN()}, {1, math.NaN()}} {
		wantText(t, h.NewMetric(2, 2, nil, buckets), "Bucket Boundaries must be strictly sorted")
	}
	wantText(t, h.NewMetric(2, 2, nil, make([]float64, maxCustomBuckets+1)), "buckets")
	wantText(t, h.NewMetric(1, 2, [][2]string{{"a", strings.Repeat("x", maxCustomLabel+1)}}, nil), "label")
	wantText(t, h.NewMetric(1, 2, make([][2]string, maxCustomLabels+1), nil), "labels")
	wantText(t, h.NewFamily(3, strings.Repeat("x", maxCustomName+1), "", Gauge), "name")
	off := New(Config{NoCustom: true}).Custom("m")
	wantText(t, off.NewFamily(1, "f", "", Counter), "metrics not supported")
	off.End(true)
}

// TestCustomMetricsNameMisuse makes requests that the stub's own classes never make.
func TestCustomMetricsNameMisuse(t *testing.T) {
	h := New(Config{}).Custom("m")
	must(t, h.NewFamily(1, "c", "", Counter))
	must(t, h.NewFamily(2, "h", "", Histogram))
	must(t, h.NewMetric(1, 1, nil, nil))
	must(t, h.NewMetric(2, 2, nil, []float64{1}))
	_, _, ofHistogram := h.Value(2)
	_, _, unknown := h.Value(9)
	for i, err := range []error{
		h.NewFamily(1, "other", "", Counter), h.NewFamily(3, "x", "", 3), h.NewFamily(3, "x", "", -1), h.NewFamily(3, "x", "\xff", Gauge),
		h.NewMetric(9, 3, nil, nil), h.NewMetric(1, 1, nil, nil), h.NewMetric(1, 0, nil, nil), h.NewMetric(1, 3, nil, []float64{1}),
		h.NewMetric(1, 3, [][2]string{{"a", "x"}, {"a", "y"}}, nil), h.NewMetric(1, 3, [][2]string{{"a", "\xff"}}, nil),
		h.DropFamily(9), h.Apply(9, Increment, 1), h.Apply(0, Increment, 1), h.Apply(1, Increment, -1), h.Apply(1, Set, 1),
		h.Apply(1, Observe, 1), h.Apply(2, Increment, 1), h.Apply(1, 7, 1), ofHistogram, unknown,
	} {
		if !errors.Is(err, ErrMisuse) {
			t.Errorf("case %d: got error %v, want ErrMisuse", i, err)
		}
	}
	must(t, h.Apply(1, Increment, math.NaN()))
	must(t, h.Apply(1, Increment, math.Copysign(0, -1)))
}

// TestCustomMetricsLiveUntilTheirLastHolder holds a series in two lives and models, which
// end in turn.
func TestCustomMetricsLiveUntilTheirLastHolder(t *testing.T) {
	r := New(Config{})
	labels := [][2]string{{"a", "1"}}
	begin := func(model string) *Holder {
		h := r.Custom(model)
		must(t, h.NewFamily(1, "f", "of "+model, Counter))
		must(t, h.NewMetric(1, 1, labels, nil))
		must(t, h.Apply(1, Increment, 1))
		return h
	}
	gone := func() {
		t.Helper()
		if text := render(t, r); strings.Contains(text, `f{`) || strings.Contains(text, "TYPE f ") {
			t.Errorf("the series is still shown:\n%s", text)
		}
	}
	first, second, other := begin("m"), begin("m"), begin("n")
	contains(t, render(t, r), "# HELP f of m", `f{a="1"} 3`)
	first.End(false)
	second.End(false)
	contains(t, render(t, r), "# HELP f of m", `f{a="1"} 3`)
	must(t, other.DropFamily(1))
	gone()
	must(t, other.Apply(1, Increment, 1)) // another thread had not heard of it
	if _, known, err := other.Value(1); known || err != nil {
		t.Errorf("value of a dropped metric: known %v, error %v", known, err)
	}
	other.End(true)
	gone()
	// Nothing is left of the name either: it may be of another kind now.
	anew := r.Custom("m")
	must(t, anew.NewFamily(1, "f", "anew", Gauge))
	must(t, anew.NewMetric(1, 1, nil, nil))
	contains(t, render(t, r), "# HELP f anew", "# TYPE f gauge")

	r = New(Config{})
	first, second = begin("m"), begin("m")
	first.End(true)
	second.End(true)
	contains(t, render(t, r), `f{a="1"} 2`)
	third := begin("m")
	contains(t, render(t, r), `f{a="1"} 3`)
	must(t, third.DropFamily(1))
	third.End(true)
	third.End(true)
	contains(t, render(t, r), `f{a="1"} 3`)
	wantText(t, r.Custom("n").NewFamily(1, "f", "", Gauge), "different type")
}

func TestCustomMetricsAreBounded(t *testing.T) {
	r := New(Config{ModelSeries: 10, Series: 14})
	h := r.Custom("m")
	must(t, h.NewFamily(1, "f", "", Gauge))
	must(t, h.NewFamily(2, "h", "", Histogram))
	label := func(i int) [][2]string { return [][2]string{{"i", fmt.Sprint(i)}} }
	for i := range 4 {
		must(t, h.NewMetric(1, uint64(i+1), label(i), nil))
	}
	must(t, h.NewMetric(2, 5, nil, []float64{1, 2, 3})) // shows six samples
	wantText(t, h.NewMetric(1, 6, label(6), nil), "model 'm' has 10 series of custom metrics, more would be beyond the limit (--metrics-config=custom_series_per_model=10)")
	must(t, h.NewMetric(1, 6, label(0), nil)) // is there already
	other := r.Custom("n")
	must(t, other.NewFamily(1, "f", "", Gauge))
	for i := range 4 {
		must(t, other.NewMetric(1, uint64(i+1), label(10+i), nil))
	}
	wantText(t, other.NewMetric(1, 5, label(20), nil), "(--metrics-config=custom_series=14)")
	must(t, other.NewMetric(1, 6, label(0), nil)) // is there already
	must(t, h.DropFamily(2))
	must(t, other.NewMetric(1, 5, label(20), nil))
	must(t, h.NewMetric(1, 7, label(7), nil))
	h.End(false)
	other.End(false)
	c := r.custom
	if c.series != 0 || len(c.families) != 0 || len(c.accounts) != 0 {
		t.Errorf("left: %d series, %d families, %d accounts", c.series, len(c.families), len(c.accounts))
	}

	// Objects are counted as well, and so are bytes.
	h = r.Custom("m")
	for i := range 10 {
		must(t, h.NewFamily(uint64(i+1), "f", "", Gauge))
		must(t, h.NewMetric(uint64(i+1), uint64(i+1), nil, nil))
	}
	wantText(t, h.NewFamily(11, "f", "", Gauge), "metric families in one process")
	wantText(t, h.NewMetric(1, 11, nil, nil), "metrics in one process")
	h.End(false)
	r = New(Config{})
	h = r.Custom("m")
	must(t, h.NewFamily(1, "f", "", Gauge))
	var err error
	for i := 0; err == nil; i++ {
		err = h.NewMetric(1, uint64(i+1), [][2]string{{"i", fmt.Sprintf("%08000d", i)}}, nil)
	}
	wantText(t, err, "bytes")
}

// TestCustomMetricsCountUnderStorm changes and reads shared series from many sides.
func TestCustomMetricsCountUnderStorm(t *testing.T) {
	r := New(Config{})
	const lives, rounds = 8, 300
	var all sync.WaitGroup
	keeper := r.Custom("keeper")
	must(t, keeper.NewFamily(1, "f", "", Counter))
	must(t, keeper.NewMetric(1, 1, nil, nil))
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
		all.Go(func() { render(t, r) })
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

// TestBytesOfAModelAreThoseOfTheConfig: dropped metrics make room.
func TestBytesOfAModelAreThoseOfTheConfig(t *testing.T) {
	h := New(Config{ModelBytes: 1000}).Custom("m")
	must(t, h.NewFamily(1, "f", strings.Repeat("d", 500), Gauge))
	wantText(t, h.NewFamily(2, "g", strings.Repeat("d", 500), Gauge), "more would be beyond the limit of 1000")
	must(t, h.DropFamily(1))
	must(t, h.NewFamily(3, "g", strings.Repeat("d", 500), Gauge))
}
