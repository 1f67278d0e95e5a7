package scheduler

import (
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// State is one implicit state of a model: what it answers as Output comes back
// as Input with the next request of the sequence.
type State struct {
	Input, Output string
	DataType      infer.DataType
	// Shape and Data are what a sequence begins with. Data is shared by all
	// sequences and does not change. The batch dimension is not in Shape.
	Shape []int64
	Data  []byte
}

// states are those of a model.
type states struct {
	list    []infer.Tensor // with the names of inputs, and the first values
	outputs []string
	shown   []bool // the output is one of the model's, too
}

func newStates(list []State, batching bool, outputs []string) *states {
	if len(list) == 0 {
		return nil
	}
	s := &states{}
	for _, x := range list {
		shape := x.Shape
		if batching {
			shape = append([]int64{1}, shape...)
		}
		s.list = append(s.list, infer.Tensor{Name: x.Input, DataType: x.DataType, Shape: shape, Data: x.Data})
		s.outputs = append(s.outputs, x.Output)
		s.shown = append(s.shown, slices.Contains(outputs, x.Output))
	}
	return s
}

// stateValues are the states of a sequence from a START on. The bytes are its
// own: a response's memory may be a stub's, which lends a few thousand tensors at
// most and ends with the process.
//
// A request is executed with the values of now. The bytes that those replaced are
// used again for those that come, unless the model is decoupled, whose answers
// may come while another request is executed.
type stateValues struct {
	now   []infer.Tensor
	spare [][]byte
}

func (s *states) begin() *stateValues {
	return &stateValues{now: slices.Clone(s.list), spare: make([][]byte, len(s.list))}
}

// append adds the states to inputs; those that a sequence begins with if values
// is nil.
func (s *states) append(inputs []infer.Tensor, values *stateValues) []infer.Tensor {
	list := s.list
	if values != nil {
		list = values.now
	}
	for _, t := range list {
		inputs = override(inputs, t)
	}
	return inputs
}

// wanted adds the states to the outputs that a client has asked for.
func (s *states) wanted(outputs []string) []string {
	all := slices.Clone(outputs)
	for _, name := range s.outputs {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// keep takes the new states from a response, and those that its client has not
// asked for out of it.
func (s *Sequence) keep(r *episode, response *infer.Response) {
	rest := response.Outputs[:0]
	for i := range response.Outputs {
		t := response.Outputs[i]
		at := slices.Index(s.states.outputs, t.Name)
		if at < 0 {
			rest = append(rest, t)
			continue
		}
		s.update(r.values, at, &t)
		if wanted := r.own.Outputs; s.states.shown[at] && (len(wanted) == 0 || slices.Contains(wanted, t.Name)) {
			rest = append(rest, t)
		} else {
			t.Release()
		}
	}
	response.Outputs = rest
}

func (s *Sequence) update(values *stateValues, at int, t *infer.Tensor) {
	var buf []byte
	if !s.config.Decoupled {
		s.mu.Lock()
		buf, values.spare[at] = values.spare[at], nil
		s.mu.Unlock()
	}
	data := append(buf[:0], t.Data...)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := &values.now[at]
	first := &s.states.list[at]
	if len(now.Data) == 0 || len(first.Data) == 0 || &now.Data[0] != &first.Data[0] { // not what all begin with
		values.spare[at] = now.Data
	}
	*now = infer.Tensor{Name: now.Name, DataType: t.DataType, Shape: slices.Clone(t.Shape), Data: data}
}
