package main

import (
	"slices"
	"testing"
)

func known(values ...float64) (pods []reading) {
	for _, v := range values {
		if v < 0 {
			pods = append(pods, reading{})
		} else {
			pods = append(pods, reading{v, true})
		}
	}
	return pods
}

// TestPodsWanted: ceil(pods × value / target), but for a tenth more or less, with pods that have no sample yet (-1 here) taken for
// idle ones on the way up and for busy ones on the way down.
func TestPodsWanted(t *testing.T) {
	for _, test := range []struct {
		name    string
		target  Target
		current int
		pods    []reading
		want    int
	}{
		{"on target", Target{Pending, 4, false}, 2, known(4, 4), 2},
		{"within the tolerance", Target{Pending, 4, false}, 2, known(4.4, 4.3), 2},
		{"above it", Target{Pending, 4, false}, 2, known(4.5, 4.5), 3},
		{"far above", Target{Pending, 4, false}, 1, known(39), 10},
		{"below", Target{Pending, 4, false}, 4, known(1, 1, 1, 1), 1},
		{"idle", Target{Pending, 4, false}, 3, known(0, 0, 0), 0},
		{"one starts, on the way up", Target{Pending, 4, false}, 2, known(20, -1), 5},
		{"one starts, and is enough", Target{Pending, 4, false}, 2, known(8, -1), 2},
		{"one starts, on the way down", Target{Pending, 4, false}, 2, known(0, -1), 1},
		{"nothing is known", Target{Pending, 4, false}, 2, known(-1, -1), 2},
		{"a sum", Target{Pending, 4, true}, 2, known(10, 10), 5},
		{"a sum within the tolerance", Target{Pending, 4, true}, 2, known(4.2, 4.2), 2},
		{"a sum does not wait for those that start", Target{Pending, 4, true}, 2, known(20, -1), 5},
		{"busy", Target{Busy, 0.7, false}, 2, known(0.9, 0.9), 3},
		{"a little busy", Target{Busy, 0.7, false}, 3, known(0.3, 0.3, 0.3), 2},
	} {
		if got := test.target.wanted(test.current, test.pods); got != test.want {
			t.Errorf("%s: got %d pods, want %d", test.name, got, test.want)
		}
	}
}

// TestLargestMetricCounts, whichever it is.
func TestLargestMetricCounts(t *testing.T) {
	c := controller{HPA: HPA{Min: 1, Max: 10, Targets: []Target{{Pending, 4, false}, {Busy, 0.7, false}}, ScaleUp: defaultUp(), ScaleDown: defaultDown()}}
	got := c.decide(0, 2, func(s Signal) []reading {
		if s == Busy {
			return known(0.95, 0.95)
		}
		return known(0, 0)
	})
	if got != 3 {
		t.Errorf("got %d pods, want 3 as the busy instances ask for", got)
	}
}

// wants runs an HPA whose metric asks for these numbers of pods, one each 15 seconds.
func wants(h HPA, current int, wanted ...int) (decided []int) {
	h.Targets = []Target{{Pending, 1, true}}
	c := controller{HPA: h}
	for i, n := range wanted {
		current = c.decide(float64(i*syncPeriod), current, func(Signal) []reading { return known(float64(n)) })
		decided = append(decided, current)
	}
	return decided
}

func TestBehaviorBoundsChanges(t *testing.T) {
	for _, test := range []struct {
		name   string
		hpa    HPA
		from   int
		wanted []int
		want   []int
	}{
		{"the defaults of Kubernetes double, or add four", HPA{Min: 1, Max: 50, ScaleUp: defaultUp(), ScaleDown: defaultDown()},
			1, []int{40, 40, 40, 40}, []int{5, 10, 20, 40}},
		{"twice as many each minute", HPA{Min: 1, Max: 50, ScaleUp: Rules{0, []Policy{{"Percent", 100, 60}}}, ScaleDown: defaultDown()},
			1, []int{40, 40, 40, 40, 40, 40}, []int{2, 2, 2, 2, 4, 4}},
		{"one each 30 s", HPA{Min: 1, Max: 50, ScaleUp: Rules{0, []Policy{{"Pods", 1, 30}}}, ScaleDown: defaultDown()},
			1, []int{40, 40, 40}, []int{2, 2, 3}},
		{"no more than the maximum", HPA{Min: 1, Max: 4, ScaleUp: defaultUp(), ScaleDown: defaultDown()}, 1, []int{40}, []int{4}},
		{"no less than the minimum", HPA{Min: 2, Max: 4, ScaleUp: defaultUp(), ScaleDown: Rules{0, defaultDown().Policies}}, 4, []int{0}, []int{2}},
		{"down at once", HPA{Min: 1, Max: 9, ScaleUp: defaultUp(), ScaleDown: Rules{0, defaultDown().Policies}}, 8, []int{1}, []int{1}},
		{"down by half a minute", HPA{Min: 1, Max: 9, ScaleUp: defaultUp(), ScaleDown: Rules{0, []Policy{{"Percent", 50, 60}}}}, 8, []int{1, 1, 1, 1, 1}, []int{4, 4, 4, 4, 2}},
		{"down to the most of the last 45 s", HPA{Min: 1, Max: 9, ScaleUp: defaultUp(), ScaleDown: Rules{45, defaultDown().Policies}},
			6, []int{6, 3, 2, 2, 2}, []int{6, 6, 6, 3, 2}},
		{"up to the least of the last 30 s", HPA{Min: 1, Max: 9, ScaleUp: Rules{30, defaultUp().Policies}, ScaleDown: defaultDown()},
			1, []int{1, 5, 3, 4}, []int{1, 1, 3, 3}},
	} {
		if got := wants(test.hpa, test.from, test.wanted...); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
