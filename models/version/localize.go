package version

import (
	"context"
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// newMapper returns the model, if nothing between here and its instances needs the bytes of
// inputs and outputs, and it can do without a copy of them; else nil.
func (v *Version) newMapper() backend.Mapper {
	c := v.info.Config
	if v.cache != nil || v.stacking != nil || c.GetSequenceBatching() != nil || c.GetEnsembleScheduling() != nil {
		return nil
	}
	for _, in := range c.GetInput() {
		if in.GetIsShapeTensor() { // its values say which requests share a batch
			return nil
		}
	}
	if _, ok := v.model.(backend.Strategist); ok || c.GetParameters()[strategyParameter] != nil {
		return nil // code of others looks at requests
	}
	m, _ := v.model.(backend.Mapper)
	return m
}

// TakesDevices reports whether inputs of requests reach the model on devices.
func (v *Version) TakesDevices() bool {
	m, ok := v.mapper.(backend.DeviceTaker)
	return ok && m.TakesDevices()
}

// localize copies the inputs that lie in foreign memory into the server's, but for those
// that the instances of the model look at where they lie. A traced request may have its
// tensors recorded, and so has them copied.
func (v *Version) localize(ctx context.Context, req *infer.Request) error {
	if v.mapper == nil || req.Trace != nil {
		return req.Localize(ctx)
	}
	for i := range req.Inputs {
		in := &req.Inputs[i]
		if in.Foreign() == nil || v.mapper.Maps(in) {
			continue
		}
		if err := in.Localize(ctx); err != nil {
			return err
		}
	}
	return nil
}

// place leaves the places of outputs in a request only if the instances of the model may put
// outputs there, and nothing on the way back needs the bytes: a traced request may have its
// tensors recorded. Otherwise the front end writes them.
func (v *Version) place(req *infer.Request) {
	if len(req.Places) == 0 {
		return
	}
	some := false
	if v.mapper != nil && req.Trace == nil {
		for i := range req.Places {
			some = v.mapper.Writes(&req.Places[i]) || some // each is asked
		}
	}
	if !some {
		req.Places = nil
	}
}
