package sequence

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// controls creates the control tensors of a model.
type controls struct {
	list  []control
	shape []int64
}

// control is one control tensor. All requests share its bytes.
type control struct {
	kind     kserve.ModelSequenceBatching_Control_Kind
	name     string
	dataType infer.DataType
	off, on  []byte // of the boolean kinds
}

// newControls reads the control inputs of a config.
//
// bound: the config
func newControls(inputs []*kserve.ModelSequenceBatching_ControlInput, batching bool) *controls {
	c := &controls{shape: []int64{1}}
	if batching {
		c.shape = []int64{1, 1}
	}
	for _, input := range inputs {
		for _, x := range input.GetControl() {
			made := control{kind: x.GetKind(), name: input.GetName()}
			switch ints, floats, bools := x.GetInt32FalseTrue(), x.GetFp32FalseTrue(), x.GetBoolFalseTrue(); {
			case made.kind == kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
				made.dataType = infer.DataType(x.GetDataType())
				made.off = make([]byte, max(made.dataType.Size(), 4))
			case len(ints) == 2:
				made.dataType = infer.Int32
				made.off = binary.LittleEndian.AppendUint32(nil, uint32(ints[0]))
				made.on = binary.LittleEndian.AppendUint32(nil, uint32(ints[1]))
			case len(floats) == 2:
				made.dataType = infer.FP32
				made.off = binary.LittleEndian.AppendUint32(nil, math.Float32bits(floats[0]))
				made.on = binary.LittleEndian.AppendUint32(nil, math.Float32bits(floats[1]))
			case len(bools) == 2:
				made.dataType = infer.Bool
				made.off, made.on = []byte{oneIf(bools[0])}, []byte{oneIf(bools[1])}
			default: // the check of the config rejects it
				continue
			}
			c.list = append(c.list, made)
		}
	}
	return c
}

func oneIf(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// append adds the control tensors of a request with these flags, replacing inputs of the same name.
// A number is written into buf.
func (c *controls) append(inputs []infer.Tensor, flags uint32, ready bool, id infer.CorrelationID, buf *[8]byte) []infer.Tensor {
	for i := range c.list {
		x := &c.list[i]
		on := false
		switch x.kind {
		case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START:
			on = flags&infer.SequenceStart != 0
		case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END:
			on = flags&infer.SequenceEnd != 0
		case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY:
			on = ready
		}
		data := x.off
		switch {
		case x.kind == kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
			if !id.IsZero() {
				data = x.correlation(id, buf)
			}
		case on:
			data = x.on
		}
		inputs = override(inputs, infer.Tensor{Name: x.name, DataType: x.dataType, Shape: c.shape, Data: data})
	}
	return inputs
}

// correlation returns the bytes of a correlation id: the low bytes of a number, or a text after its
// length.
//
// bound: maxCorrelation
func (x *control) correlation(id infer.CorrelationID, buf *[8]byte) []byte {
	if x.dataType != infer.Bytes {
		binary.LittleEndian.PutUint64(buf[:], id.Number)
		return buf[:x.dataType.Size()]
	}
	text := id.Text
	if text == "" {
		text = strconv.FormatUint(id.Number, 10)
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	return append(b, text...)
}

// override adds a tensor to inputs, replacing one of the same name.
func override(inputs []infer.Tensor, t infer.Tensor) []infer.Tensor {
	for i := range inputs {
		if inputs[i].Name == t.Name {
			inputs[i] = t
			return inputs
		}
	}
	return append(inputs, t)
}

// extra returns the largest number of inputs that are added to a request.
func (s *Batcher) extra() int {
	n := len(s.controls.list)
	if s.states != nil {
		n += len(s.states.list)
	}
	return n
}

// injectLocked copies a request taken from its sequence, and adds the control and state inputs that
// the model expects.
func (s *Batcher) injectLocked(r *episode, seq *sequence) {
	r.request = *r.own
	req := &r.request
	// bound: the inputs, controls and states of the config
	req.Inputs = append(make([]infer.Tensor, 0, len(r.own.Inputs)+s.extra()), r.own.Inputs...)
	req.Inputs = s.controls.append(req.Inputs, req.Flags, true, req.Correlation, &r.id)
	if s.states == nil {
		return
	}
	if seq.values == nil || r.starts() {
		s.dropValuesLocked(seq.values)
		seq.values = s.states.begin()
	}
	s.beginLocked(r, seq.values)
	req.Inputs = s.states.append(req.Inputs, r.values)
	if len(req.Outputs) > 0 {
		req.Outputs = s.states.wanted(req.Outputs)
	}
}

// starts reports whether a request begins its sequence.
func (r *episode) starts() bool { return r.own.Flags&infer.SequenceStart != 0 }
