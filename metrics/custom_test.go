package metrics_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/metrics/exposition"
)

func TestCustomMetricsAreShown(t *testing.T) {
	r := metrics.New(metrics.Config{})
	h := r.Custom("m")
	metrics.Must(t, h.NewFamily(1, "hits", "what \\ was\nhit", metrics.Counter))
	metrics.Must(t, h.NewFamily(2, "level", "", metrics.Gauge))
	metrics.Must(t, h.NewFamily(3, "size:bytes", "sizes", metrics.Histogram))
	metrics.Must(t, h.NewFamily(4, "empty", "never shown", metrics.Counter))
	metrics.Must(t, h.NewMetric(1, 1, [][2]string{{"z", "a\"b\\c\nd"}, {"a", "ü"}}, nil))
	metrics.Must(t, h.NewMetric(2, 2, nil, nil))
	metrics.Must(t, h.NewMetric(3, 3, [][2]string{{"a", "b"}}, []float64{0.1, 1, 10, 1e7}))
	metrics.Must(t, h.NewMetric(3, 4, nil, nil))
	metrics.Must(t, h.NewMetric(3, 5, [][2]string{{"a", "inf"}}, []float64{1, math.Inf(1)}))
	for _, v := range []float64{0.1, 0.5, 5, 100, 1e9} {
		metrics.Must(t, h.Apply(3, metrics.Observe, v))
	}
	metrics.Must(t, h.Apply(4, metrics.Observe, 3))
	metrics.Must(t, h.Apply(1, metrics.Increment, 1e6))
	metrics.Must(t, h.Apply(2, metrics.Set, 2.5))
	metrics.Must(t, h.Apply(2, metrics.Increment, -5))
	text := metrics.Render(t, r)
	metrics.Contains(t, text,
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

// TestSamplesMatchThePage checks that Samples returns the labels and values of gauges as the
// page shows them.
func TestSamplesMatchThePage(t *testing.T) {
	r := metrics.New(metrics.Config{})
	h := r.Custom("m")
	metrics.Must(t, h.NewFamily(1, "blocks", "", metrics.Gauge))
	metrics.Must(t, h.NewFamily(2, "sizes", "", metrics.Histogram))
	metrics.Must(t, h.NewMetric(1, 1, [][2]string{{"kind", "used"}, {"a", "x\"y"}}, nil))
	metrics.Must(t, h.NewMetric(1, 2, [][2]string{{"kind", "max"}}, nil))
	metrics.Must(t, h.NewMetric(2, 3, nil, []float64{1}))
	metrics.Must(t, h.Apply(1, metrics.Set, 1.5))
	metrics.Must(t, h.Apply(2, metrics.Set, 1e17))
	want := []metrics.Sample{{`a="x\"y",kind="used"`, "1.5"}, {`kind="max"`, "1e+17"}}
	if got := r.Samples("blocks"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, family := range []string{"sizes", "none"} {
		if got := r.Samples(family); len(got) > 0 {
			t.Errorf("%s: got %q, want none", family, got)
		}
	}
}

// TestNumbersAreWrittenAsTritonWrites compares the text of numbers with Triton's exposition format.
func TestNumbersAreWrittenAsTritonWrites(t *testing.T) {
	for _, tt := range []struct {
		value float64
		want  string
	}{
		{0, "0"}, {math.Copysign(0, -1), "-0"}, {1, "1"}, {1e6, "1000000"}, {123456789, "123456789"}, {1e15, "1000000000000000"},
		{1e16, "1e+16"}, {1e20, "1e+20"}, {1e300, "1e+300"}, {0.1, "0.1"}, {1. / 3, "0.3333333333333333"}, {1e-5, "1e-05"},
		{1e-4, "0.0001"}, {1.5e-7, "1.5e-07"}, {1234567.891, "1234567.891"}, {1 << 53, "9007199254740992"}, {-5, "-5"},
		{math.NaN(), "Nan"}, {math.Inf(1), "+Inf"}, {math.Inf(-1), "-Inf"},
		// Triton writes 16 digits, which would be a different number.
		{12345678901234568, "1.2345678901234568e+16"}, {math.Nextafter(0.3, 1), "0.30000000000000004"},
	} {
		if got := string(exposition.AppendNumber(nil, tt.value)); got != tt.want {
			t.Errorf("%g: got %q, want %q", tt.value, got, tt.want)
		}
	}
}

// TestCustomMetricsNameMisuse sends requests that the stub's own classes never send, and checks the
// errors.
func TestCustomMetricsNameMisuse(t *testing.T) {
	h := metrics.New(metrics.Config{}).Custom("m")
	metrics.Must(t, h.NewFamily(1, "c", "", metrics.Counter))
	metrics.Must(t, h.NewFamily(2, "h", "", metrics.Histogram))
	metrics.Must(t, h.NewMetric(1, 1, nil, nil))
	metrics.Must(t, h.NewMetric(2, 2, nil, []float64{1}))
	_, _, ofHistogram := h.Value(2)
	_, _, unknown := h.Value(9)
	for i, err := range []error{
		h.NewFamily(1, "other", "", metrics.Counter), h.NewFamily(3, "x", "", 3), h.NewFamily(3, "x", "", -1), h.NewFamily(3, "x", "\xff", metrics.Gauge),
		h.NewMetric(9, 3, nil, nil), h.NewMetric(1, 1, nil, nil), h.NewMetric(1, 0, nil, nil), h.NewMetric(1, 3, nil, []float64{1}),
		h.NewMetric(1, 3, [][2]string{{"a", "x"}, {"a", "y"}}, nil), h.NewMetric(1, 3, [][2]string{{"a", "\xff"}}, nil),
		h.DropFamily(9), h.Apply(9, metrics.Increment, 1), h.Apply(0, metrics.Increment, 1), h.Apply(1, metrics.Increment, -1), h.Apply(1, metrics.Set, 1),
		h.Apply(1, metrics.Observe, 1), h.Apply(2, metrics.Increment, 1), h.Apply(1, 7, 1), ofHistogram, unknown,
	} {
		if !errors.Is(err, metrics.ErrMisuse) {
			t.Errorf("case %d: got error %v, want ErrMisuse", i, err)
		}
	}
	metrics.Must(t, h.Apply(1, metrics.Increment, math.NaN()))
	metrics.Must(t, h.Apply(1, metrics.Increment, math.Copysign(0, -1)))
}

// TestCustomMetricsLiveUntilTheirLastHolder checks that a series shared by several lives and models
// is shown until its last holder drops it or ends.
func TestCustomMetricsLiveUntilTheirLastHolder(t *testing.T) {
	r := metrics.New(metrics.Config{})
	labels := [][2]string{{"a", "1"}}
	begin := func(model string) *metrics.Holder {
		h := r.Custom(model)
		metrics.Must(t, h.NewFamily(1, "f", "of "+model, metrics.Counter))
		metrics.Must(t, h.NewMetric(1, 1, labels, nil))
		metrics.Must(t, h.Apply(1, metrics.Increment, 1))
		return h
	}
	gone := func() {
		t.Helper()
		if text := metrics.Render(t, r); strings.Contains(text, `f{`) || strings.Contains(text, "TYPE f ") {
			t.Errorf("the series is still shown:\n%s", text)
		}
	}
	first, second, other := begin("m"), begin("m"), begin("n")
	metrics.Contains(t, metrics.Render(t, r), "# HELP f of m", `f{a="1"} 3`)
	first.End(false)
	second.End(false)
	metrics.Contains(t, metrics.Render(t, r), "# HELP f of m", `f{a="1"} 3`)
	metrics.Must(t, other.DropFamily(1))
	gone()
	metrics.Must(t, other.Apply(1, metrics.Increment, 1)) // as a thread does that has not noticed the drop
	if _, known, err := other.Value(1); known || err != nil {
		t.Errorf("value of a dropped metric: known %v, error %v", known, err)
	}
	other.End(true)
	gone()
	// The name is free again, even for a metric of another kind.
	anew := r.Custom("m")
	metrics.Must(t, anew.NewFamily(1, "f", "anew", metrics.Gauge))
	metrics.Must(t, anew.NewMetric(1, 1, nil, nil))
	metrics.Contains(t, metrics.Render(t, r), "# HELP f anew", "# TYPE f gauge")

	r = metrics.New(metrics.Config{})
	first, second = begin("m"), begin("m")
	first.End(true)
	second.End(true)
	metrics.Contains(t, metrics.Render(t, r), `f{a="1"} 2`)
	third := begin("m")
	metrics.Contains(t, metrics.Render(t, r), `f{a="1"} 3`)
	metrics.Must(t, third.DropFamily(1))
	third.End(true)
	third.End(true)
	metrics.Contains(t, metrics.Render(t, r), `f{a="1"} 3`)
	metrics.WantText(t, r.Custom("n").NewFamily(1, "f", "", metrics.Gauge), "different type")
}

// TestConfigLimitsTheBytesOfAModel checks the configured limit on a model's bytes, and that a
// dropped family frees its bytes.
func TestConfigLimitsTheBytesOfAModel(t *testing.T) {
	h := metrics.New(metrics.Config{ModelBytes: 1000}).Custom("m")
	metrics.Must(t, h.NewFamily(1, "f", strings.Repeat("d", 500), metrics.Gauge))
	metrics.WantText(t, h.NewFamily(2, "g", strings.Repeat("d", 500), metrics.Gauge), "more would be beyond the limit of 1000")
	metrics.Must(t, h.DropFamily(1))
	metrics.Must(t, h.NewFamily(3, "g", strings.Repeat("d", 500), metrics.Gauge))
}
