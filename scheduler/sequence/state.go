package sequence

import (
	"slices"

	"github.com/nereid-serving/nereid/budget"
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
//
// The bytes are charged as long as the id of the sequence is known, for as long may
// a client leave them lying. What a sequence that has ended still needs goes with
// its last request.
type stateValues struct {
	now     []infer.Tensor
	spare   [][]byte
	charged int64
	gone    bool // nothing is charged any more
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
// asked for out of it. Where there is no memory for them, the states stay what they
// were and the request fails.
func (s *Batcher) keep(r *episode, response *infer.Response) error {
	if err := s.chargeStates(r.values, response); err != nil {
		for i := range response.Outputs {
			response.Outputs[i].Release()
		}
		return err
	}
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
	return nil
}

// chargeStates charges for what a response's states need beyond what those before
// them had.
func (s *Batcher) chargeStates(values *stateValues, response *infer.Response) error {
	if s.config.Memory == nil {
		return nil
	}
	for i := range response.Outputs {
		t := &response.Outputs[i]
		at := slices.Index(s.states.outputs, t.Name)
		if at < 0 {
			continue
		}
		s.mu.Lock()
		n, gone := int64(len(t.Data)-cap(values.spare[at])), values.gone
		s.mu.Unlock()
		if n <= 0 || gone {
			continue
		}
		if err := s.config.Memory.Take(budget.States, n); err != nil {
			return err
		}
		s.mu.Lock()
		if gone = values.gone; !gone {
			values.charged += n
		}
		s.mu.Unlock()
		if gone {
			s.config.Memory.Give(budget.States, n)
		}
	}
	return nil
}

// unchargeLocked gives back what is charged for the states of a sequence that is over.
// Callers hold s.mu.
func (s *Batcher) unchargeLocked(values *stateValues) {
	if values == nil || values.gone {
		return
	}
	values.gone = true
	if values.charged > 0 {
		s.config.Memory.Give(budget.States, values.charged)
		values.charged = 0
	}
}

func (s *Batcher) update(values *stateValues, at int, t *infer.Tensor) {
	var buf []byte
	if !s.config.Decoupled {
		s.mu.Lock()
		buf, values.spare[at] = values.spare[at], nil
		s.mu.Unlock()
	}
	if cap(buf) < len(t.Data) {
		buf = make([]byte, len(t.Data))
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
