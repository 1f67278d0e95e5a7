package main

import "testing"

// TestPodsComeAndGoWithoutLoss: a pod that drains answers what it has; one that is not given the time loses it.
func TestPodsComeAndGoWithoutLoss(t *testing.T) {
	run := func(delay, grace, seconds float64) Result {
		return simulate(Params{
			Model: Model{2, seconds, false}, Pods: 4, Scrape: 15, Window: 60, Start: 30, Unlisted: 2, ExitDelay: delay, Grace: grace, Seconds: 1200, Seed: 5,
			HPA: HPA{Min: 1, Max: 4, Targets: []Target{{Busy, 0.7, false}}, ScaleUp: defaultUp(), ScaleDown: Rules{0, defaultDown().Policies}},
		}, step(3.2*2/seconds*0.7, 0.3*2/seconds, 300))
	}
	if r := run(10, 30, 5); r.Lost != 0 || r.Most != 4 || r.Least != 1 {
		t.Errorf("got %d requests lost and %d to %d pods, want none and 1 to 4", r.Lost, r.Least, r.Most)
	}
	if r := run(0, 1, 5); r.Lost == 0 {
		t.Error("no request was lost by pods that end at once, want some")
	}
}

// TestPodsAreReadyWhenTheyHaveStarted: a step waits for the sync, the start and no longer.
func TestPodsAreReadyWhenTheyHaveStarted(t *testing.T) {
	var longest []float64
	for _, start := range []float64{0, 60} {
		r := simulate(Params{
			Model: Model{4, 0.1, false}, Pods: 1, Scrape: 5, Window: 60, Start: start, Seconds: 1200, Seed: 5,
			HPA: HPA{Min: 1, Max: 4, Targets: []Target{{Pending, 4, false}}, ScaleUp: defaultUp(), ScaleDown: defaultDown()},
		}, step(10, 100, 300))
		if len(r.Changes) == 0 || r.Changes[0].At < 300 || r.Changes[0].At > 300+5+syncPeriod+1 {
			t.Errorf("start of %v s: got changes %v, want the first within a scrape and a sync of the step at 300", start, r.Changes)
		}
		longest = append(longest, r.Longest)
	}
	// 60 s more of two and a half times the capacity are a queue of 90 s.
	if more := longest[1] - longest[0]; more < 75 || more > 105 {
		t.Errorf("a start of 60 s makes the longest wait %.0f s longer, want about 90", more)
	}
}

// TestToZeroAndBack: KEDA ends the last pod after its cooldown, and the requests that wake it are lost unless something holds them.
func TestToZeroAndBack(t *testing.T) {
	run := func(hold bool) Result {
		return simulate(Params{
			Model: Model{2, 0.1, false}, Pods: 1, Scrape: 15, Window: 60, Start: 20, Unlisted: 2, ExitDelay: 10, Grace: 30, Seconds: 7200, Seed: 5, Hold: hold,
			HPA: HPA{Min: 1, Max: 4, Targets: []Target{{Pending, 4, true}}, ScaleUp: defaultUp(), ScaleDown: defaultDown()}, KEDA: &KEDA{30, 300, true},
		}, visits(4, 600, 1200))
	}
	r := run(false)
	if r.Least != 0 || r.Most < 1 || r.Turns() != 7 {
		t.Errorf("got %d to %d pods and changes %v, want 0 and back four times", r.Least, r.Most, r.Changes)
	}
	// Four visits wait for at most a poll and the start.
	if most := 4 * 4 * (30 + 20 + 5); r.Lost == 0 || r.Lost > most {
		t.Errorf("got %d requests lost, want some and at most %d", r.Lost, most)
	}
	if held := run(true); held.Lost != 0 || held.Longest < 20 || held.Longest > 60 {
		t.Errorf("where requests are held: got %d lost and a wait of %.0f s, want none and 20 to 60", held.Lost, held.Longest)
	}
	if r.PodSeconds > 0.6*7200 {
		t.Errorf("got %.0f seconds of pods in 7200, want less than 0.6 of them", r.PodSeconds)
	}
}
