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

// newStates returns the states of a config.
//
// bound: the config
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

// stateValues are the states of a sequence since its last START. Bytes of now that are not of the
// initial value are in bytes, and those of the previous one in spare, to be reused.
type stateValues struct {
	now          []infer.Tensor
	bytes, spare []*stateBytes
	gone         bool // no request will begin with them: the sequence has ended or started again
}

// stateBytes are bytes of one state. They are copies: a response's memory may belong to a stub,
// which lends a few thousand tensors at most and ends with its process. They are charged while they
// have users: the values that have them as now or spare, and requests that began with them, which
// may need them until their last response.
type stateBytes struct {
	data  []byte
	room  int // charged
	users int
}

// begin returns the initial values.
//
// bound: the config
func (s *states) begin() *stateValues {
	both := make([]*stateBytes, 2*len(s.list))
	return &stateValues{now: slices.Clone(s.list), bytes: both[:len(s.list)], spare: both[len(s.list):]}
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
//
// bound: the outputs and states of the config
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
	room, err := s.room(r, response)
	if err != nil {
		for i := range response.Outputs {
			response.Outputs[i].Release()
		}
		return err
	}
	rest := response.Outputs[:0] // bound: there is room
	for i := range response.Outputs {
		t := response.Outputs[i]
		at := slices.Index(s.states.outputs, t.Name)
		if at < 0 {
			rest = append(rest, t)
			continue
		}
		if room[i] != nil {
			s.update(r.values, at, &t, room[i])
		}
		if wanted := r.own.Outputs; s.states.shown[at] && (len(wanted) == 0 || slices.Contains(wanted, t.Name)) {
			rest = append(rest, t)
		} else {
			t.Release()
		}
	}
	response.Outputs = rest
	return nil
}

// room returns charged bytes for the states in a response, by output; nil where no request will
// begin with that state.
func (s *Batcher) room(r *episode, response *infer.Response) ([]*stateBytes, error) {
	room := make([]*stateBytes, len(response.Outputs)) // bound: the outputs, which are charged
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.own.Flags&infer.SequenceEnd != 0 {
		return room, nil
	}
	for i := range response.Outputs {
		t := &response.Outputs[i]
		at := slices.Index(s.states.outputs, t.Name)
		if at < 0 || r.values.gone {
			continue
		}
		var err error
		if room[i], err = s.roomLocked(r.values, at, len(t.Data)); err != nil {
			s.dropBytesLocked(room)
			return nil, err
		}
	}
	return room, nil
}

// roomLocked takes the spare bytes of a state, unless a request needs them, and charges the rest.
// After an error they are spare as before.
func (s *Batcher) roomLocked(values *stateValues, at, size int) (*stateBytes, error) {
	if b := values.spare[at]; b == nil || b.users > 1 {
		s.dropBytesLocked(values.spare[at : at+1])
		values.spare[at] = &stateBytes{users: 1}
	}
	b := values.spare[at]
	if n := size - b.room; n > 0 {
		if s.config.Memory != nil {
			if err := s.config.Memory.Take(budget.States, int64(n)); err != nil {
				return nil, err
			}
		}
		b.room = size
	}
	values.spare[at] = nil
	return b, nil
}

// update copies a response's tensor to b and makes the copy the value of a state.
func (s *Batcher) update(values *stateValues, at int, t *infer.Tensor, b *stateBytes) {
	if cap(b.data) < len(t.Data) {
		b.data = make([]byte, 0, b.room) // bound: charged by roomLocked
	}
	b.data = append(b.data[:0], t.Data...) // bound: there is room
	s.mu.Lock()
	defer s.mu.Unlock()
	if values.gone {
		s.dropBytesLocked([]*stateBytes{b})
		return
	}
	s.dropBytesLocked(values.spare[at : at+1])
	values.spare[at], values.bytes[at] = values.bytes[at], b
	// bound: infer.MaxRank
	values.now[at] = infer.Tensor{Name: values.now[at].Name, DataType: t.DataType, Shape: slices.Clone(t.Shape), Data: b.data}
}

// beginLocked makes a request begin with the values of its sequence.
func (s *Batcher) beginLocked(r *episode, values *stateValues) {
	s.dropBytesLocked(r.bytes) // of an attempt that came back
	r.values = values
	r.bytes = append(r.bytes[:0], values.bytes...) // bound: the states of the config
	for _, b := range r.bytes {
		if b != nil {
			b.users++
		}
	}
}

// dropValuesLocked ends the use of values by their sequence.
func (s *Batcher) dropValuesLocked(values *stateValues) {
	if values != nil && !values.gone {
		s.dropBytesLocked(values.bytes)
		s.dropBytesLocked(values.spare)
		*values = stateValues{gone: true}
	}
}

// dropBytesLocked removes one user of each element, which may be nil, and clears the list.
func (s *Batcher) dropBytesLocked(list []*stateBytes) {
	for _, b := range list {
		if b == nil {
			continue
		}
		if b.users--; b.users == 0 && s.config.Memory != nil {
			s.config.Memory.Give(budget.States, int64(b.room))
		}
	}
	clear(list)
}
