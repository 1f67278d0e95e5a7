package main

import (
	"math"
	"testing"
)

// alone is one pod without an autoscaler, for as many requests as a mean of waits needs.
func alone(m Model, share float64, requests float64) Result {
	rate := share * m.capacity()
	return simulate(Params{Model: m, Pods: 1, Scrape: 15, Seconds: requests / rate, Ignore: requests / rate / 50, Seed: 7}, steady(rate))
}

// erlangC is the probability that a request waits in M/M/c.
func erlangC(c int, offered float64) float64 {
	blocked := 1.0
	for k := 1; k <= c; k++ {
		blocked = offered * blocked / (float64(k) + offered*blocked)
	}
	rho := offered / float64(c)
	return blocked / (1 - rho*(1-blocked))
}

// TestWaitsAreThoseOfQueues compares mean waits with Erlang's formula for random executions, and with that of Pollaczek and Khinchine
// for executions that take one time.
func TestWaitsAreThoseOfQueues(t *testing.T) {
	for _, test := range []struct {
		name  string
		model Model
		share float64
	}{
		{"M/M/1", Model{1, 0.1, true}, 0.6}, {"M/M/4", Model{4, 0.1, true}, 0.8}, {"M/D/1", Model{1, 0.1, false}, 0.7},
	} {
		want := test.share * test.model.Seconds / 2 / (1 - test.share)
		if m := test.model; m.Random {
			offered := test.share * float64(m.Instances)
			want = erlangC(m.Instances, offered) * m.Seconds / (float64(m.Instances) * (1 - test.share))
		}
		r := alone(test.model, test.share, 100_000)
		if got := r.Mean; math.Abs(got/want-1) > 0.08 || r.Lost > 0 {
			t.Errorf("%s at %v: got a mean wait of %.4f s and %d lost, want %.4f s and none", test.name, test.share, got, r.Lost, want)
		}
	}
}

// TestQuantilesAreThoseOfQueues: in M/M/1 a wait exceeds t with the probability ρ·exp(-(1-ρ)·μ·t).
func TestQuantilesAreThoseOfQueues(t *testing.T) {
	const rho, mu = 0.6, 10
	r := alone(Model{1, 1.0 / mu, true}, rho, 100_000)
	if want := math.Log(rho/0.01) / ((1 - rho) * mu); math.Abs(r.P99/want-1) > 0.08 {
		t.Errorf("got %.3f s for 99 of 100 waits, want %.3f s", r.P99, want)
	}
}

// TestArrivalsFollowTheirRate counts the requests of loads that change.
func TestArrivalsFollowTheirRate(t *testing.T) {
	for _, l := range []load{steady(20), step(5, 40, 1000), burst(5, 50, 500, 700), day(2, 40, 2000), crowd(3, 60, 500, 200), visits(30, 100, 300)} {
		want := 0.0
		for s := range 2000 {
			want += l.rate(float64(s) + 0.5)
		}
		r := simulate(Params{Model: Model{1000, 0.01, false}, Pods: 1, Scrape: 15, Seconds: 2000, Seed: 3}, l)
		if got := float64(r.Requests); math.Abs(got-want) > 5*math.Sqrt(want) {
			t.Errorf("%s: got %v requests, want %.0f", l.name, got, want)
		}
	}
}

// TestARunIsRepeatable: the same seed, the same result.
func TestARunIsRepeatable(t *testing.T) {
	run := func(seed uint64) Result {
		return simulate(Params{Model: Model{2, 0.1, true}, Pods: 2, Scrape: 15, Seconds: 500, Seed: seed}, steady(20))
	}
	if a, b := run(1), run(1); a.Mean != b.Mean || a.Requests != b.Requests {
		t.Errorf("got %v and %v with one seed", a, b)
	}
	if a, b := run(1), run(2); a.Mean == b.Mean {
		t.Errorf("got %v with two seeds", a)
	}
}
