package main

import "math/rand/v2"

// request waits in a pod.
type request struct{ came float64 }

// pod is a replica. Its life: starting, ready, draining (it serves, and gets no new requests once the endpoints know), gone.
type pod struct {
	started   float64
	ready     bool
	leaving   bool // told to go
	reachable bool // among the endpoints
	gone      bool
	queue     []request
	busy      int     // instances that execute
	spent     float64 // seconds of executions that have ended
	samples   []sample
}

// sample is what a scrape saw.
type sample struct {
	at      float64
	pending int
	spent   float64
}

// scrape keeps what is needed of the past.
func (p *pod) scrape(now, window float64) {
	p.samples = append(p.samples, sample{now, len(p.queue), p.spent})
	for len(p.samples) > 1 && p.samples[0].at < now-window {
		p.samples = p.samples[1:]
	}
}

// Signal is a metric of a pod.
type Signal int

// Signals that the chart can scale by.
const (
	Pending Signal = iota + 1 // requests that wait: nv_inference_pending_request_count
	Busy                      // share of time that the instances execute, over the window of the rate: nereid_busy_share
)

func (s Signal) String() string { return map[Signal]string{Pending: "pending", Busy: "busy"}[s] }

// read returns what Prometheus knows of a signal at a time.
func (p *pod) read(s Signal, now, window float64, instances int) reading {
	if len(p.samples) == 0 {
		return reading{}
	}
	last := p.samples[len(p.samples)-1]
	if s == Pending {
		return reading{float64(last.pending), true}
	}
	for _, first := range p.samples {
		if first.at >= now-window && last.at > first.at {
			return reading{(last.spent - first.spent) / (last.at - first.at) / float64(instances), true}
		}
	}
	return reading{0, true} // a rate takes two samples, and without one the rule says 0
}

// serviceTime draws how long one execution takes.
func (m Model) serviceTime(chance *rand.Rand) float64 {
	if m.Random {
		return m.Seconds * chance.ExpFloat64()
	}
	return m.Seconds
}
