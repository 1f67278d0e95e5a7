package scheduler_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// FuzzGraph lets models call each other at random and compares each rejection with a simulation
// that lets everything end that can. A call must be rejected if and only if the simulation never
// executes it.
func FuzzGraph(f *testing.F) {
	f.Add([]byte("\x00\x00\x00"))
	f.Add([]byte("\x02\x00\x00\x00\x03\x00\x01\x03\x01\x00\x03\x02\x01"))
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 7))
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(random.UintN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) { newPlay(t, data).run() })
	})
}

// play turns bytes into steps of a world.
type play struct {
	*world
	choices
	names     []string
	refused   int // calls, at once
	suspected int // and after the graph's patience
}

func newPlay(t *testing.T, data []byte) *play {
	p := &play{choices: choices{data}}
	var models strings.Builder
	for i := range 1 + p.pick(4) {
		name := string(rune('a' + i))
		p.names = append(p.names, name)
		fmt.Fprintf(&models, "%s%d", name, 1+p.pick(3))
		if size := p.pick(5); size > 1 {
			fmt.Fprintf(&models, "x%d", size)
		}
		models.WriteString(" ")
	}
	p.world = newWorld(t, models.String())
	if p.pick(2) == 1 {
		for _, a := range p.instances {
			a.ahead = true
		}
	}
	return p
}

// choices are made by fuzzed data.
type choices struct{ data []byte }

// pick reads a number below n from the data, or returns 0 at its end.
func (c *choices) pick(n int) int {
	if len(c.data) == 0 || n == 0 {
		return 0
	}
	b := int(c.data[0])
	c.data = c.data[1:]
	return b % n
}

// among picks one of the matching requests, or returns "".
func (p *play) among(fits func(id string, r *asked) bool) string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(p.asked)) {
		if fits(id, p.asked[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[p.pick(len(ids))]
}

func (p *play) executed(_ string, r *asked) bool { return r.executed() }

// done reports whether a request can end: it is executing and waits for no call.
func (p *play) done(_ string, r *asked) bool { return r.executed() && !p.calls(r.batch, false) }

func (p *play) background(id string, r *asked) bool {
	return r.by == nil && r.task != nil && !r.over()
}

// must runs a step that may be rejected only if no instance will be healthy.
func (p *play) must(step string) {
	if err := p.step(step); err != nil && !strings.HasSuffix(err.Error(), "is not healthy.") {
		p.t.Fatalf("step %q: %v", step, err)
	}
}

func (p *play) run() {
	for n := 0; len(p.data) > 0 && n < 80; n++ {
		id := fmt.Sprintf("%03d", n)
		model := p.names[p.pick(len(p.names))]
		switch p.pick(16) {
		case 0, 1, 2:
			p.must("ask " + id + " " + model)
		case 3, 4, 5, 6, 7, 8:
			if outer := p.among(p.executed); outer != "" {
				p.call(id, model, outer, true)
			}
		case 9:
			if outer := p.among(p.background); outer != "" {
				p.call(id, model, outer, false)
			}
		case 10:
			if done := p.among(p.done); done != "" {
				p.must("end " + done)
			}
		case 11:
			if done := p.among(p.executed); done != "" {
				p.must("return " + done)
			}
		case 12:
			if done := p.among(p.background); done != "" {
				p.must("answer " + done)
			}
		case 13:
			if gone := p.among(func(id string, r *asked) bool { return !r.over() }); gone != "" {
				r := p.asked[gone]
				waits := r.queued()
				p.must("cancel " + gone)
				synctest.Wait()
				if waits && !r.over() {
					p.t.Fatalf("step %d: request %s waits, although its client has left", n, gone)
				}
			}
		case 14:
			if a := p.instances[model+"0"]; a.down {
				p.must("up " + a.called)
			} else {
				p.must("restart " + a.called)
			}
		case 15:
			if a := p.instances[model+"1"]; a != nil && !a.down {
				p.must("lose " + a.called)
			}
		}
		for _, stuck := range p.simulate(false) {
			p.t.Fatalf("step %d: request %s waits for ever and was not refused:\n%s", n, stuck, p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.instances)) {
		if p.instances[name].down {
			p.must("up " + name)
		}
	}
	p.endAll()
}

// endAll ends everything, background executions first.
func (p *play) endAll() {
	for {
		if id := p.among(p.background); id != "" {
			p.must("answer " + id)
		} else if id := p.among(p.done); id != "" {
			p.must("end " + id)
		} else {
			p.finish()
			return
		}
	}
}

// call makes a call and compares its rejection with the simulation.
func (p *play) call(id, model, outer string, holding bool) {
	if p.asked[outer].request.Depth() >= waitgraph.MaxDepth {
		return
	}
	err := p.send(id, model, outer, holding)
	r := p.asked[id]
	if err == nil {
		if !r.queued() {
			return
		}
		hangs := slices.Contains(p.simulate(true), id)
		time.Sleep(waitgraph.Patience)
		synctest.Wait()
		if refused := r.over(); refused != hangs {
			p.t.Fatalf("call %s of %s to model %s: refused because it may wait for ever: %v, the simulation says %v", id, outer, model, refused, hangs)
		} else if refused {
			p.suspected++
		}
		return
	}
	if p.instancesLost(model) {
		return
	}
	// Simulate the call as if it had been queued.
	p.refused++
	r.refused = nil
	hangs := slices.Contains(p.simulate(false), id)
	r.refused = err
	if !hangs {
		p.t.Fatalf("call %s of %s to model %s was refused, and would have been executed: %v", id, outer, model, err)
	}
}

func (p *play) instancesLost(model string) bool {
	for _, a := range p.instances {
		if a.model == model && !a.down {
			return false
		}
	}
	return true
}

// idsOf returns the ids of a batch.
func (p *play) idsOf(b *backend.Batch) (ids []string) {
	for _, r := range p.with(b, false) {
		ids = append(ids, r.ID)
	}
	return ids
}

// has returns the batches of an instance.
func (p *play) has(instance string) (batches []string) {
	for _, b := range p.instances[instance].has {
		batches = append(batches, ids(b))
	}
	return batches
}

// simulate lets everything end that can and returns the requests that do not end. If all is true,
// background executions wait for their calls.
func (p *play) simulate(all bool) []string {
	open := make(map[string]bool)
	queues := make(map[string][]string)
	inside := make(map[*actor][][]string)
	calls := make(map[string][]string)
	for id, r := range p.asked {
		if !r.over() {
			open[id] = true
			calls[r.outer] = append(calls[r.outer], id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.asked)) { // in any order: none of them has made calls
		if r := p.asked[id]; r.queued() {
			queues[r.model] = append(queues[r.model], id)
		}
	}
	for _, a := range p.instances {
		if a.lost {
			continue
		}
		inside[a] = nil
		for _, b := range a.has {
			inside[a] = append(inside[a], p.idsOf(b))
		}
	}
	blocked := func(ids []string, all bool) bool {
		return slices.ContainsFunc(ids, func(id string) bool {
			return slices.ContainsFunc(calls[id], func(c string) bool { return open[c] && (all || p.asked[c].holding) })
		})
	}
	for moved := true; moved; {
		moved = false
		for a, has := range inside {
			switch {
			case len(has) == 0 && len(queues[a.model]) > 0:
				inside[a], queues[a.model] = [][]string{queues[a.model][:1]}, queues[a.model][1:]
				moved = true
			case len(has) > 0 && !blocked(has[0], all):
				for _, id := range has[0] {
					open[id] = false
				}
				inside[a] = has[1:]
				moved = true
			}
		}
		for id := range open {
			r := p.asked[id]
			if open[id] && p.background(id, r) && (!all || !blocked(p.idsOf(r.batch), true)) {
				open[id] = false
				moved = true
			}
		}
	}
	var left []string
	for id, is := range open {
		if is {
			left = append(left, id)
		}
	}
	slices.Sort(left)
	return left
}

// String lists the batches of all instances and all waiting requests.
func (p *play) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.instances)) {
		fmt.Fprintf(&b, "%s has %v, down: %v\n", name, p.has(name), p.instances[name].down)
	}
	for _, id := range slices.Sorted(maps.Keys(p.asked)) {
		if r := p.asked[id]; !r.over() {
			fmt.Fprintf(&b, "%s to %s for %q, holding %v, queued %v\n", id, r.model, r.outer, r.holding, r.queued())
		}
	}
	return b.String()
}

// TestGraphRefusesAtRandom checks that the random worlds of FuzzGraph have deadlocks.
func TestGraphRefusesAtRandom(t *testing.T) {
	refused, suspected, calls := 0, 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 11))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(random.UintN(256))
		}
		synctest.Test(t, func(t *testing.T) {
			p := newPlay(t, data)
			p.run()
			refused += p.refused
			suspected += p.suspected
			for _, r := range p.asked {
				if r.outer != "" {
					calls++
				}
			}
		})
	}
	if refused < calls/50 || refused > calls/2 || suspected < calls/500 {
		t.Errorf("of %d calls %d were refused at once and %d later: the worlds try nothing", calls, refused, suspected)
	}
	t.Logf("of %d calls %d were refused at once and %d later", calls, refused, suspected)
}
