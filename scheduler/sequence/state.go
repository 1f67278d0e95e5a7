package sequence

import (
	"slices"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// State is one implicit state of a model: the value of Output in a response is the value of Input
// in the next request of the sequence.
type State struct {
	Input, Output string
	DataType      infer.DataType
	// Shape and Data are the initial value. All sequences share Data, which does not change. Shape
	// has no batch dimension.
	Shape []int64
	Data  []byte
}

// states are the implicit states of a model.
type states struct {
	list    []infer.Tensor // named as inputs, with initial values
	outputs []string
	shown   []bool // the output is also an output of the model
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

// stateValues are the states of a sequence since its last START. The bytes are copies: a response's
// memory may belong to a stub, which lends a few thousand tensors at most and ends with its
// process.
//
// A request executes with the values in now. The bytes of the previous values are reused, unless
// the model is decoupled: its responses may arrive while another request executes.
//
// The bytes are charged while the id of the sequence is known, because a client may leave it idle
// for that long. The states of a sequence that has ended last until its last request.
type stateValues struct {
	now     []infer.Tensor
	spare   [][]byte
	charged int64
	gone    bool // the sequence has ended; nothing is charged
}

func (s *states) begin() *stateValues {
	return &stateValues{now: slices.Clone(s.list), spare: make([][]byte, len(s.list))}
}

// append adds the states to inputs; nil stands for the initial values.
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

// wanted adds the states to the outputs that a client requests.
func (s *states) wanted(outputs []string) []string {
	all := slices.Clone(outputs)
	for _, name := range s.outputs {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// keep stores the states of a response, and removes those that the client has not requested.
// Without memory the states do not change and the request fails.
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

// chargeStates charges the growth of the states in a response.
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

// unchargeLocked refunds the states of a sequence that has ended.
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
	if len(now.Data) == 0 || len(first.Data) == 0 || &now.Data[0] != &first.Data[0] { // not the initial value
		values.spare[at] = now.Data
	}
	*now = infer.Tensor{Name: now.Name, DataType: t.DataType, Shape: slices.Clone(t.Shape), Data: data}
}
