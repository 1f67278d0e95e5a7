package signature

import (
	"github.com/nereid-serving/nereid/infer"
)

// reshape converts a shape that matches from to one that matches to: the variable dimensions of to
// are filled, in order, with the variable ones of shape. A batch dimension stays in front; a
// scalar, which an output may be, has none.
func reshape(shape, from, to []int64, batch bool) []int64 {
	out := make([]int64, 0, len(to)+1) // bound: the config
	if batch && len(shape) > 0 {
		out = append(out, shape[0])
		shape = shape[1:]
	}
	next := 0
	for _, d := range to {
		if d == -1 {
			for next < len(from) && from[next] != -1 {
				next++
			}
			if next < len(shape) {
				d = shape[next]
				next++
			}
		}
		out = append(out, d)
	}
	return out
}

// ShapeOutputs gives a response's outputs the shapes that the config's dims announce to clients.
func (s *Model) ShapeOutputs(r *infer.Response) {
	if !s.reshapes {
		return
	}
	for i := range r.Outputs {
		spec := s.byOutput[r.Outputs[i].Name]
		if spec == nil || !spec.reshaped {
			continue
		}
		shape, batch := r.Outputs[i].Shape, s.maxBatch > 0
		item := shape
		if batch && len(shape) > 0 {
			item = shape[1:]
		}
		if infer.ShapeFits(item, spec.reshape) {
			r.Outputs[i].Shape = reshape(shape, spec.reshape, spec.dims, batch)
		}
	}
}
