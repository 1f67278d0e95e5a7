package message

import (
	"context"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/clientshm"
)

// RegionOutput is an output that is written to a range of a client's region.
type RegionOutput struct {
	Output string
	Slice  *clientshm.Slice
}

// Put writes the outputs to the regions, unless the backend has done so. They have no bytes in the
// reply, so their memory is released. A copy to a device ends with ctx while it waits for other
// copies.
func Put(ctx context.Context, r *infer.Response, outputs []RegionOutput) error {
	for _, output := range outputs {
		for i := range r.Outputs {
			out := &r.Outputs[i]
			if out.Name != output.Output {
				continue
			}
			if !out.InPlace() {
				if err := output.Slice.Write(ctx, out.Name, out.Data); err != nil {
					return err
				}
			}
			out.Release()
			out.Data, out.Memory = nil, nil
		}
	}
	return nil
}

// regionRange is the range of a client's region that a tensor's parameters name.
type regionRange struct {
	given        bool
	region       string
	offset, size uint64
}

// find returns the range. The caller releases it.
func (r regionRange) find(named *clientshm.Registry) (*clientshm.Slice, error) {
	return named.Find(r.region, r.offset, r.size)
}

// readRange reads the parameters that place a tensor in a client's region. A negative number
// becomes one that no region has.
func readRange(tensor string, params []param) (r regionRange, err error) {
	if len(params) == 0 {
		return r, nil
	}
	if v := findParam(params, "shared_memory_region"); v != nil {
		if v.kind != stringParam {
			return r, invalid("invalid value type for 'shared_memory_region' parameter for tensor '%s', expected string_param.", tensor)
		}
		r.region, r.given = v.string, true
	}
	offset, size := findParam(params, "shared_memory_offset"), findParam(params, "shared_memory_byte_size")
	for _, p := range []struct {
		name  string
		value *value
		to    *uint64
	}{{"shared_memory_offset", offset, &r.offset}, {"shared_memory_byte_size", size, &r.size}} {
		switch {
		case p.value == nil:
		case !r.given:
			return r, invalid("'%s' can not be specified without 'shared_memory_region' parameter for tensor '%s'", p.name, tensor)
		case p.value.kind != int64Param:
			// Triton names the offset for both.
			return r, invalid("invalid value type for 'shared_memory_offset' parameter for tensor '%s', expected int64_param.", tensor)
		default:
			*p.to = p.value.bits
		}
	}
	if r.given && size == nil {
		return r, invalid("'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '%s'", tensor)
	}
	return r, nil
}
