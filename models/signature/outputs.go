package signature

import (
	"fmt"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// OddOutput returns the index of the first output, from the given one on, whose name, data type or
// shape contradicts the configuration, or -1. It allocates nothing, because it runs for each
// response.
func (s *Model) OddOutput(r *infer.Response, from int) int {
	for i := from; i < len(r.Outputs); i++ {
		if out := &r.Outputs[i]; !s.fits(s.byOutput[out.Name], out) {
			return i
		}
	}
	return -1
}

func (s *Model) fits(spec *tensor, out *infer.Tensor) bool {
	if spec == nil || spec.dataType != out.DataType {
		return false
	}
	want, got := spec.dims, out.Shape
	if spec.reshaped {
		want = spec.reshape
	}
	if s.maxBatch > 0 {
		if len(got) == 0 {
			return false
		}
		got = got[1:]
	}
	return infer.ShapeFits(got, want)
}

// Oddity returns a sentence about an output that OddOutput has found.
func (s *Model) Oddity(out *infer.Tensor) string {
	spec := s.byOutput[out.Name]
	if spec == nil {
		names := make([]string, len(s.outputs)) // bound: the config
		for i := range s.outputs {
			names[i] = "'" + s.outputs[i].name + "'"
		}
		if len(names) == 0 {
			names = []string{"none"}
		}
		return fmt.Sprintf("output '%s' is not in the configuration of model '%s', whose outputs are %s", out.Name, s.model, strings.Join(names, ", ")) // bound: the config
	}
	dims, batch := spec.dims, ""
	if spec.reshaped {
		dims = spec.reshape
	}
	if s.maxBatch > 0 {
		batch = " after the batch dimension"
	}
	return fmt.Sprintf("output '%s' of model '%s' is %s with shape %s, want %s with dims %s%s, as its configuration says",
		out.Name, s.model, out.DataType, infer.ShapeString(out.Shape), spec.dataType, infer.ShapeString(dims), batch)
}
