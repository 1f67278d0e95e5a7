package ensemble

import "slices"

// step is a step with its tensors by number.
type step struct {
	*Step
	inputs, outputs []int    // tensors, as in Inputs and Outputs
	wants           []string // names of the outputs
}

type output struct {
	name   string
	tensor int
	dims   []int64
}

// plan lists the steps that a choice of outputs needs.
type plan struct {
	outputs []output
	needed  []bool     // steps
	readers [][]reader // inputs of needed steps, by tensor
	takers  []int      // by tensor: readers, plus one for a wanted output
	wanted  []bool     // wanted outputs, by tensor
}

// reader is an input of a step.
type reader struct{ step, input int }

// compile numbers the tensors.
//
// bound: the config
func (e *Scheduler) compile() {
	number := func(tensor string) int {
		n, known := e.tensors[tensor]
		if !known {
			n = len(e.tensors)
			e.tensors[tensor] = n
		}
		return n
	}
	for _, in := range e.config.Inputs {
		e.inputs = append(e.inputs, number(in))
	}
	for i := range e.config.Steps {
		s := step{Step: &e.config.Steps[i]}
		for _, l := range s.Inputs {
			s.inputs = append(s.inputs, number(l.Tensor))
		}
		for _, l := range s.Outputs {
			s.outputs = append(s.outputs, number(l.Tensor))
			s.wants = append(s.wants, l.Name)
		}
		e.steps = append(e.steps, s)
		e.widest += len(s.inputs)
	}
	for _, out := range e.config.Outputs {
		e.outputs[out.Tensor] = output{out.Tensor, number(out.Tensor), out.Dims}
	}
	e.whole = e.choose(nil)
	calls := make(map[string]int) // of each model
	for _, s := range e.config.Steps {
		calls[s.Model]++
	}
	e.keepsNoSlots = slices.ContainsFunc(e.config.Steps, func(s Step) bool { return s.Decoupled && calls[s.Model] > 1 })
}

// plan returns the plan for the outputs of a request; no names mean all outputs.
func (e *Scheduler) plan(outputs []string) *plan {
	if len(outputs) == 0 {
		return e.whole
	}
	return e.choose(outputs)
}

// choose returns the plan for some outputs; no names mean all.
//
// bound: the config
func (e *Scheduler) choose(names []string) *plan {
	if len(names) == 0 {
		for _, out := range e.config.Outputs {
			names = append(names, out.Tensor)
		}
	}
	p := &plan{
		needed: make([]bool, len(e.steps)), readers: make([][]reader, len(e.tensors)),
		takers: make([]int, len(e.tensors)), wanted: make([]bool, len(e.tensors)),
	}
	maker := make([]int, len(e.tensors)) // the step, counted from 1
	for i := range e.steps {
		for _, tensor := range e.steps[i].outputs {
			maker[tensor] = i + 1
		}
	}
	var todo []reader // the next input of each step on the way: a recursion would keep a large stack
	need := func(tensor int) {
		if i := maker[tensor] - 1; i >= 0 && !p.needed[i] {
			p.needed[i] = true
			todo = append(todo, reader{i, 0})
		}
	}
	for _, name := range names {
		out, known := e.outputs[name]
		if !known || p.wanted[out.tensor] {
			continue
		}
		p.outputs = append(p.outputs, out)
		p.wanted[out.tensor] = true
		p.takers[out.tensor]++
		need(out.tensor)
		for len(todo) > 0 {
			next := &todo[len(todo)-1]
			inputs := e.steps[next.step].inputs
			if next.input == len(inputs) {
				todo = todo[:len(todo)-1]
				continue
			}
			from := inputs[next.input]
			p.readers[from] = append(p.readers[from], *next)
			p.takers[from]++
			next.input++
			need(from)
		}
	}
	return p
}
