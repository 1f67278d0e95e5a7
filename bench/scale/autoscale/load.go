package main

import (
	"math"
	"math/rand/v2"
)

// load is how requests come: at random times, as many in a second as rate says.
type load struct {
	name string
	rate func(t float64) float64 // requests per second
	most float64                 // no rate is above it
}

// steady is one rate.
func steady(rate float64) load {
	return load{"steady", func(float64) float64 { return rate }, rate}
}

// step goes from one rate to another one.
func step(before, after, at float64) load {
	return load{"step", func(t float64) float64 {
		if t < at {
			return before
		}
		return after
	}, max(before, after)}
}

// burst is a higher rate for some time.
func burst(base, peak, from, to float64) load {
	return load{"burst", func(t float64) float64 {
		if t >= from && t < to {
			return peak
		}
		return base
	}, max(base, peak)}
}

// day goes up and down once in a period, from the low rate on.
func day(low, high, period float64) load {
	return load{"day", func(t float64) float64 {
		return low + (high-low)*(1-math.Cos(2*math.Pi*t/period))/2
	}, high}
}

// crowd comes within half a minute and loses interest over some minutes.
func crowd(base, peak, at, fading float64) load {
	const rise = 30
	return load{"crowd", func(t float64) float64 {
		switch {
		case t < at:
			return base
		case t < at+rise:
			return base + (peak-base)*(t-at)/rise
		}
		return base + (peak-base)*math.Exp(-(t-at-rise)/fading)
	}, peak}
}

// visits are times with requests, and longer ones without.
func visits(rate, on, off float64) load {
	return load{"visits", func(t float64) float64 {
		if math.Mod(t, on+off) < off {
			return 0
		}
		return rate
	}, rate}
}

// next returns when the next request comes: candidates at the highest rate, of which so many are dropped that the rest come as they should.
func (l load) next(t float64, chance *rand.Rand) float64 {
	if l.most <= 0 {
		return math.Inf(1)
	}
	for {
		t += chance.ExpFloat64() / l.most
		if chance.Float64()*l.most < l.rate(t) {
			return t
		}
	}
}
