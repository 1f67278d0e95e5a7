package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHistogramKeepsQuantiles compares the histogram's quantiles with those of the sorted values.
// It is internal because measured latencies are not known beforehand.
func TestHistogramKeepsQuantiles(t *testing.T) {
	for _, most := range []int64{3, 200, 1000, 1e6, 1e12} {
		var h, first, second histogram
		values := make([]int64, 10_000)
		for i := range values {
			values[i] = rand.Int64N(most)
			h.add(time.Duration(values[i]))
			if i%3 == 0 {
				first.add(time.Duration(values[i]))
			} else {
				second.add(time.Duration(values[i]))
			}
		}
		slices.Sort(values)
		first.merge(&second)
		for _, q := range []float64{.01, .5, .9, .99, .999, 1} {
			want := values[int(math.Ceil(q*float64(len(values))))-1]
			for _, found := range []time.Duration{h.quantile(q), first.quantile(q)} {
				if math.Abs(float64(found)-float64(want)) > float64(want)/subBuckets {
					t.Errorf("values below %d, quantile %v: got %d, want %d", most, q, found, want)
				}
			}
		}
		if h.most != time.Duration(values[len(values)-1]) || h.total != uint64(len(values)) {
			t.Errorf("values below %d: got most %d of %d", most, h.most, h.total)
		}
	}
	if (&histogram{}).quantile(.5) != 0 || (&histogram{}).mean() != 0 {
		t.Error("an empty histogram has values")
	}
}
