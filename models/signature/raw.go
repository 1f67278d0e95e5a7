package signature

import (
	"encoding/binary"

	"github.com/nereid-serving/nereid/infer"
)

// deduce sets name, type and shape of the single input of a raw request.
func (s *Model) deduce(r *infer.Request) error {
	if len(s.inputs) != 1 {
		return refuse("%sRaw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration", r.LogPrefix(), len(s.inputs), s.model)
	}
	spec, in := &s.inputs[0], &r.Inputs[0]
	in.Name, in.DataType, in.Shape = spec.name, spec.dataType, nil
	if s.maxBatch > 0 {
		in.Shape = append(in.Shape, 1) // bound: the dims of the config
	}
	if spec.dataType == infer.Bytes {
		if len(spec.dims) != 1 || spec.dims[0] != 1 {
			return refuse("%sFor BYTE datatype raw input '%s', the model must have input shape [1]", r.LogPrefix(), in.Name)
		}
		// The client sends only the text. It moves up to make room for its length.
		n := len(in.Data)
		in.Data = append(in.Data, make([]byte, infer.RawPrefix)...) // bound: there is room for it
		copy(in.Data[infer.RawPrefix:], in.Data[:n])
		binary.LittleEndian.PutUint32(in.Data, uint32(n)) //nolint:gosec // bodies are smaller
		in.Shape = append(in.Shape, 1)                    // bound: the dims of the config
		return nil
	}
	variable, fixed := -1, int64(spec.dataType.Size())
	for i, d := range spec.dims {
		if d != -1 {
			fixed *= d
			continue
		}
		if variable >= 0 {
			return refuse("%sThe shape of the raw input '%s' can not be deduced because there are more than one variable-sized dimension", r.LogPrefix(), in.Name)
		}
		variable = i
	}
	for i, d := range spec.dims {
		if i == variable {
			d = int64(len(in.Data)) / max(fixed, 1)
		}
		in.Shape = append(in.Shape, d) // bound: the dims of the config
	}
	return nil
}
