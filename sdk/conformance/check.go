package conformance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// check is the check of one model.
type check struct {
	ctx     context.Context
	way     Way
	options Options
	model   Model
	written *kserve.ModelConfig
	config  *kserve.ModelConfig // as the backend has completed it, once it has

	found    map[string][]string // violations, by rule
	tried    map[string]bool
	untested map[string]string // reasons, by rule
	notes    []string
	hung     bool // a request has not been answered in time, and what follows would wait as long each time, or the process has ended
}

// run runs the scenarios.
func (c *check) run() {
	before := runtime.NumGoroutine()
	c.try(ruleHooks, rulePanics)
	s, err := c.open(1)
	if err != nil {
		c.violated(ruleHooks, "loading the model", err.Error())
		c.skip("the model cannot be loaded")
		return
	}
	for _, scenario := range []func(*session){c.aloneTwice, c.together, c.empty, c.missing, c.gone, c.many} {
		if !c.hung {
			scenario(s)
		}
	}
	s.end(c)
	for _, again := range []func(){c.side, c.unload} {
		if !c.hung {
			again()
		}
	}
	if c.way.InProcess() {
		c.untested[ruleProcess] = "the backend had no process of its own"
	}
	if c.hung {
		c.skip("the suite ended early, as a request was not answered in time, or the process has ended")
		return
	}
	c.leftovers(before)
}

// side executes on two instances at the same time.
func (c *check) side() {
	s, err := c.open(2)
	if err != nil {
		c.violated(ruleHooks, "loading the model again, with two instances", err.Error())
		return
	}
	defer s.end(c)
	if len(s.instances) != 2 {
		c.violated(ruleHooks, "loading the model again, with two instances", fmt.Sprintf("%d instances are there", len(s.instances)))
		return
	}
	c.try(ruleConcurrent)
	const rounds = 20
	for n := range rounds {
		var calls []*call
		for i, in := range s.instances {
			calls = append(calls, hand([]context.Context{c.ctx}, in, c.request(2*n+i, anySize)))
		}
		for _, each := range calls {
			c.settle(s, each, "two instances at once")
		}
		if c.hung {
			c.violated(ruleConcurrent, "two instances at once", "a request was not answered and released")
			return
		}
	}
}

// unload closes the instance while it executes. Requests of decoupled models may run for a long
// time.
func (c *check) unload() {
	s, err := c.open(1)
	if err != nil {
		c.violated(ruleHooks, "loading the model again", err.Error())
		return
	}
	c.try(ruleUnload)
	under := hand([]context.Context{c.ctx}, s.instances[0], c.batch(0)...)
	s.end(c)
	under.mu.Lock()
	open := under.open
	under.mu.Unlock()
	if open > 0 {
		c.violated(ruleUnload, "unloading while requests are under way", fmt.Sprintf("Close has returned, and %d of %d requests had no final response", open, len(under.requests)))
		return
	}
	c.settle(s, under, "unloading while requests are under way")
}

// leftovers finds goroutines that the backend has not ended.
func (c *check) leftovers(before int) {
	if !c.way.InProcess() {
		c.untested[ruleGoroutines] = "the backend had a process of its own, which has ended"
		return
	}
	c.try(ruleGoroutines)
	end := time.Now().Add(c.options.Limit)
	after := runtime.NumGoroutine()
	for ; after > before && time.Now().Before(end); after = runtime.NumGoroutine() {
		time.Sleep(look)
	}
	if after > before {
		stacks := make([]byte, 64<<10)
		stacks = stacks[:runtime.Stack(stacks, true)]
		c.violated(ruleGoroutines, "after Backend.Close", fmt.Sprintf("%d goroutines are there, %d were before:\n%s", after, before, stacks))
	}
}

// batch creates the requests of a call: as many as the config allows in a batch.
func (c *check) batch(first int) (requests []*asked) {
	for n := range min(max(c.config.MaxBatchSize, 1), 4) {
		requests = append(requests, c.request(first+int(n), anySize))
	}
	return requests
}

// settle waits for a call and checks everything that is visible of it. It returns the outcomes, or
// nil if they have not arrived.
func (c *check) settle(s *session, each *call, scenario string) []outcome {
	missing := each.wait(s.limit)
	defer each.release()
	if missing != "" {
		rule := ruleAnswers
		if each.answered() {
			rule = ruleReleases
		}
		c.violated(rule, scenario, missing)
		c.hung = true
	}
	if s.lives.lost.Load() > 0 {
		c.violated(ruleProcess, scenario, "the process of the instance has ended")
		c.hung = true
	} else if !c.way.InProcess() {
		c.try(ruleProcess)
	}
	c.try(ruleAnswers, ruleReleases, ruleInputs, ruleSent, ruleTaken, ruleStatistics)
	c.faults(s, scenario)
	each.mu.Lock()
	defer each.mu.Unlock()
	for i := range each.outcomes {
		c.looked(each, i, scenario)
	}
	if missing != "" {
		return nil
	}
	return slices.Clone(each.outcomes)
}

// looked checks one outcome.
func (c *check) looked(each *call, i int, scenario string) {
	a, r := &each.outcomes[i], each.requests[i]
	name := r.request.ID
	if a.late > 0 {
		c.violated(ruleAnswers, scenario, fmt.Sprintf("%s: %d responses came after the final one", name, a.late))
	}
	if checksum(r.request.Inputs) != r.sum {
		c.violated(ruleInputs, scenario, name+": its inputs have other bytes than before")
	}
	for at, response := range a.responses {
		var now []byte
		for o := range response.Outputs {
			c.try(ruleOutputs)
			if wrong := c.output(r.request, &response.Outputs[o]); wrong != "" {
				c.violated(ruleOutputs, scenario, name+": "+wrong)
			}
			now = append(now, response.Outputs[o].Data...)
		}
		if string(now) != string(a.copies[at]) {
			c.violated(ruleSent, scenario, fmt.Sprintf("%s: the outputs of response %d have other bytes than when it was sent", name, at))
		}
	}
}

// output returns the fault of an output, or "".
func (c *check) output(r *infer.Request, t *infer.Tensor) string {
	at := slices.IndexFunc(c.config.Output, func(o *kserve.ModelOutput) bool { return o.Name == t.Name })
	if at < 0 {
		if len(c.config.Output) == 0 {
			return "" // the backend completes the config
		}
		return fmt.Sprintf("output %s is not in the config", t.Name)
	}
	want := c.config.Output[at]
	if kind := want.DataType; kind.String() != t.DataType.ConfigName() {
		return fmt.Sprintf("output %s is %s, want %s", t.Name, t.DataType.ConfigName(), kind)
	}
	dims, shape := want.Dims, t.Shape
	if want.Reshape != nil {
		dims = want.Reshape.Shape
	}
	if c.config.MaxBatchSize > 0 {
		if len(shape) == 0 || shape[0] != r.BatchSize {
			return fmt.Sprintf("output %s has shape %s, want %d rows, as its request has", t.Name, infer.ShapeString(shape), r.BatchSize)
		}
		shape = shape[1:]
	}
	if !slices.EqualFunc(dims, shape, func(d, n int64) bool { return d == n || d < 0 && n >= 0 }) {
		return fmt.Sprintf("output %s has shape %s, want dims %s", t.Name, infer.ShapeString(t.Shape), infer.ShapeString(dims))
	}
	if n, ok := infer.ByteSize(t.DataType, t.Shape); ok && n != t.Size() {
		return fmt.Sprintf("output %s has %d bytes, want %d for shape %s", t.Name, t.Size(), n, infer.ShapeString(t.Shape))
	}
	return ""
}

// answered reports whether only releases are missing.
func (c *call) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == 0 && c.done > 0
}

// faults records the engine's reports about the backend.
func (c *check) faults(s *session, scenario string) {
	for _, fault := range s.journal.take(s.backend) {
		c.violated(ruleOf(fault), scenario, fault)
	}
}

// most is how many violations of a rule are reported.
const most = 3

func (c *check) violated(rule, scenario, what string) {
	c.tried[rule] = true
	if list := c.found[rule]; len(list) < most {
		c.found[rule] = append(list, scenario+": "+what)
	}
}

func (c *check) try(rules ...string) {
	for _, rule := range rules {
		c.tried[rule] = true
	}
}

// skip sets the reason of all rules that no scenario has tried.
func (c *check) skip(reason string) {
	for _, rule := range rules {
		if c.untested[rule.name] == "" {
			c.untested[rule.name] = reason
		}
	}
}

// note adds a note once.
func (c *check) note(text string) {
	if !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// report adds the outcome of each rule.
func (c *check) report(to *Report) {
	for _, rule := range rules {
		result := Result{Model: c.config.Name, Rule: rule.name, Says: rule.says, Status: Passed}
		switch {
		case len(c.found[rule.name]) > 0:
			result.Status, result.Why = Failed, c.found[rule.name]
		case !c.tried[rule.name]:
			result.Status = Untested
			if why := c.untested[rule.name]; why != "" {
				result.Why = []string{why}
			}
		}
		to.Results = append(to.Results, result)
	}
	for _, note := range c.notes {
		to.Notes = append(to.Notes, c.config.Name+": "+note)
	}
}
