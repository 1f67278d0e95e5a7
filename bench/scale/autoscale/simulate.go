package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Model is what a pod serves.
type Model struct {
	Instances int     // of each pod
	Seconds   float64 // of an execution
	Random    bool    // the times are exponentially distributed, instead of all alike
}

// capacity is how many requests a pod can execute in a second.
func (m Model) capacity() float64 { return float64(m.Instances) / m.Seconds }

// Params are all that a run depends on, besides the load.
type Params struct {
	Model     Model
	HPA       HPA
	KEDA      *KEDA   // nil: the HPA alone
	Scrape    float64 // seconds between scrapes
	Window    float64 // seconds over which rates are taken
	Start     float64 // seconds from the decision to a pod that is ready: scheduling, image, models, probe
	Unlisted  float64 // seconds until no endpoint names a pod that is told to go
	ExitDelay float64 // seconds for which it serves on
	Grace     float64 // seconds after that for the requests that it has
	Hold      bool    // requests wait while there is no endpoint (an activator); else they are lost
	Pods      int     // at the beginning, ready
	Seconds   float64 // how long it runs
	Ignore    float64 // of which the first do not count
	Seed      uint64
}

// KEDA is what a ScaledObject adds to the HPA that it makes: from zero, and back.
type KEDA struct {
	Polling  float64 // seconds between looks at the triggers
	Cooldown float64 // seconds without activity before the last pod goes
	Zero     bool    // whether it may go; the HPA itself keeps one
}

// Result is what a run was worth.
type Result struct {
	Requests    int
	Lost        int     // came while there was no endpoint, or were cut off with a pod
	Mean        float64 // seconds that requests waited
	P50, P99    float64
	Longest     float64
	PodSeconds  float64 // of pods from their start to their end
	Least, Most int     // pods wanted
	Changes     []Change
}

// Change is a decision about the number of pods.
type Change struct {
	At       float64
	From, To int
}

// Turns counts how often the direction changed.
func (r Result) Turns() int {
	turns := 0
	for i := 1; i < len(r.Changes); i++ {
		if (r.Changes[i].To > r.Changes[i].From) != (r.Changes[i-1].To > r.Changes[i-1].From) {
			turns++
		}
	}
	return turns
}

// world is a run under way.
type world struct {
	clock
	Params
	load    load
	chance  *rand.Rand
	hpa     controller
	pods    []*pod
	target  int // pods wanted
	held    []request
	waits   []float64
	recent  int     // requests since KEDA last looked
	active  float64 // when there was one last
	result  Result
	counted float64 // up to when pods are accounted for
}

// simulate runs a load.
func simulate(p Params, l load) Result {
	w := &world{Params: p, load: l, chance: rand.New(rand.NewPCG(p.Seed, 1)), hpa: controller{HPA: p.HPA}, target: p.Pods}
	w.result.Least, w.result.Most = p.Pods, p.Pods
	for range p.Pods {
		w.begin(0)
	}
	w.arrive()
	if len(p.HPA.Targets) > 0 {
		w.every(syncPeriod*w.chance.Float64(), syncPeriod, w.sync)
	}
	if p.KEDA != nil {
		w.every(p.KEDA.Polling*w.chance.Float64(), p.KEDA.Polling, w.poll)
	}
	w.run(p.Seconds)
	w.countPods()
	slices.Sort(w.waits)
	r := &w.result
	for _, wait := range w.waits {
		r.Mean += wait / float64(len(w.waits))
	}
	if n := len(w.waits); n > 0 {
		r.P50, r.P99, r.Longest = w.waits[n/2], w.waits[min(n-1, n*99/100)], w.waits[n-1]
	}
	return *r
}

// begin starts a pod that is ready after some seconds.
func (w *world) begin(seconds float64) {
	w.countPods()
	p := &pod{started: w.now}
	w.pods = append(w.pods, p)
	w.after(seconds, func() {
		if p.leaving {
			return
		}
		p.ready, p.reachable = true, true
		w.scrapeOf(p, w.now+w.Scrape*w.chance.Float64())
		held := w.held
		w.held = nil
		for _, r := range held {
			w.give(r)
		}
	})
}

func (w *world) scrapeOf(p *pod, at float64) {
	w.at(at, func() {
		if !p.gone {
			p.scrape(w.now, w.Window)
			w.scrapeOf(p, w.now+w.Scrape)
		}
	})
}

// end tells a pod to go.
func (w *world) end(p *pod) {
	p.leaving = true
	if !p.ready {
		w.remove(p)
		return
	}
	w.after(w.Unlisted, func() { p.reachable = false })
	w.after(w.ExitDelay, func() {
		p.reachable = false
		if p.idle() {
			w.remove(p)
		}
	})
	w.after(w.ExitDelay+w.Grace, func() {
		if !p.gone {
			w.result.Lost += len(p.queue) + p.busy
			w.remove(p)
		}
	})
}

func (p *pod) idle() bool { return p.busy == 0 && len(p.queue) == 0 }

func (w *world) remove(p *pod) {
	w.countPods()
	p.gone, p.reachable = true, false
	w.pods = slices.DeleteFunc(w.pods, func(other *pod) bool { return other == p })
}

func (w *world) countPods() {
	if w.now > w.Ignore {
		w.result.PodSeconds += float64(len(w.pods)) * (w.now - max(w.counted, w.Ignore))
	}
	w.counted = w.now
}

// arrive has the next request come, and the ones after it.
func (w *world) arrive() {
	next := w.load.next(w.now, w.chance)
	if math.IsInf(next, 1) {
		return
	}
	w.at(next, func() {
		w.recent++
		if w.now > w.Ignore {
			w.result.Requests++
		}
		w.give(request{w.now})
		w.arrive()
	})
}

// give sends a request to any of the endpoints, as a Service does with many clients.
func (w *world) give(r request) {
	var endpoints []*pod
	for _, p := range w.pods {
		if p.reachable {
			endpoints = append(endpoints, p)
		}
	}
	if len(endpoints) == 0 {
		if w.Hold {
			w.held = append(w.held, r)
		} else if w.now > w.Ignore {
			w.result.Lost++
		}
		return
	}
	p := endpoints[w.chance.IntN(len(endpoints))]
	p.queue = append(p.queue, r)
	w.serve(p)
}

// serve has idle instances of a pod take requests that wait.
func (w *world) serve(p *pod) {
	for p.busy < w.Model.Instances && len(p.queue) > 0 {
		r := p.queue[0]
		p.queue = p.queue[1:]
		if r.came > w.Ignore {
			w.waits = append(w.waits, w.now-r.came)
		}
		p.busy++
		seconds := w.Model.serviceTime(w.chance)
		w.after(seconds, func() {
			if p.gone {
				return
			}
			p.spent += seconds
			p.busy--
			w.serve(p)
			if p.leaving && !p.reachable && p.idle() {
				w.remove(p)
			}
		})
	}
}

// sync is one round of the HPA, which is off while there are no pods.
func (w *world) sync() {
	if w.target == 0 {
		return
	}
	staying := w.staying()
	w.scale(w.hpa.decide(w.now, w.target, func(s Signal) []reading {
		readings := make([]reading, len(staying))
		for i, p := range staying {
			readings[i] = p.read(s, w.now, w.Window, w.Model.Instances)
		}
		return readings
	}))
}

// staying are the pods that are not told to go.
func (w *world) staying() []*pod {
	var pods []*pod
	for _, p := range w.pods {
		if !p.leaving {
			pods = append(pods, p)
		}
	}
	return pods
}

// poll is one look of KEDA at its trigger, which counts requests where there need be no pod.
func (w *world) poll() {
	active := w.recent > 0 || len(w.held) > 0
	w.recent = 0
	if active {
		w.active = w.now
	}
	switch {
	case active && w.target == 0:
		w.scale(1)
	case !active && w.target > 0 && w.KEDA.Zero && w.now-w.active >= w.KEDA.Cooldown:
		w.scale(0)
	}
}

// scale starts pods, or ends the youngest.
func (w *world) scale(n int) {
	if n == w.target {
		return
	}
	if w.now > w.Ignore {
		w.result.Changes = append(w.result.Changes, Change{w.now, w.target, n})
		w.result.Least, w.result.Most = min(w.result.Least, n), max(w.result.Most, n)
	} else {
		w.result.Least, w.result.Most = n, n
	}
	w.target = n
	staying := w.staying()
	for range n - len(staying) {
		w.begin(w.Start)
	}
	// The controller of Deployments ends pods that are not ready before the others, and then the youngest.
	slices.SortStableFunc(staying, func(a, b *pod) int {
		switch {
		case a.ready != b.ready && a.ready:
			return -1
		case a.ready != b.ready:
			return 1
		}
		return int(math.Copysign(1, a.started-b.started))
	})
	for i := n; i < len(staying); i++ {
		w.end(staying[i])
	}
}
