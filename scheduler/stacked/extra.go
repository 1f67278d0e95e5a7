package stacked

import (
	"encoding/binary"
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// extra creates a batch_input, without its name. As in Triton's backends, its values describe each
// request, not each row, except for the shapes of items.
func (g *group) extra(e *extra) (infer.Tensor, error) {
	parts, err := g.parts(e.source)
	if err != nil {
		return infer.Tensor{}, err
	}
	t := infer.Tensor{DataType: infer.Int32}
	if e.float {
		t.DataType = infer.FP32
	}
	if e.kind == kserve.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE {
		most := int64(0)
		for _, part := range parts {
			n, _ := infer.Elements(part.Shape)
			most = max(most, n)
		}
		if most > math.MaxInt64/4 {
			return t, g.fault("input '%s' has %d elements", e.source, most)
		}
		t.Shape = []int64{most}
		if t.Data, t.Memory, err = g.memoryOf(4 * most); err != nil {
			return t, err
		}
		clear(t.Data) // it may contain bytes of other requests
		return t, nil
	}
	var values []int64
	rank := int64(len(parts[0].Shape) - 1)
	sum := int64(0)
	if e.kind == kserve.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO {
		values = append(values, 0)
	}
	for _, part := range parts {
		n, _ := infer.Elements(part.Shape)
		sum += n
		switch e.kind {
		case kserve.BatchInput_BATCH_ELEMENT_COUNT:
			values = append(values, n) // bound: the batch
		case kserve.BatchInput_BATCH_ITEM_SHAPE, kserve.BatchInput_BATCH_ITEM_SHAPE_FLATTEN:
			for range part.Shape[0] {
				values = append(values, part.Shape[1:]...) // bound: the batch
			}
		default:
			values = append(values, sum) // bound: the batch
		}
	}
	t.Shape = []int64{int64(len(values))}
	if e.kind == kserve.BatchInput_BATCH_ITEM_SHAPE {
		t.Shape = []int64{g.total, rank}
	}
	if t.Data, t.Memory, err = g.memoryOf(4 * int64(len(values))); err != nil {
		return t, err
	}
	for i, v := range values {
		bits := uint32(v)
		switch {
		case e.float:
			bits = math.Float32bits(float32(v))
		case v > math.MaxInt32:
			return t, g.fault("input '%s' has %d elements, which its batch_input of INT32 cannot tell", e.source, v)
		}
		binary.LittleEndian.PutUint32(t.Data[4*i:], bits)
	}
	return t, nil
}
