package version

import (
	"context"
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// newMapper returns the model if its instances can use foreign memory without a copy and nothing in
// between needs the bytes of inputs and outputs; else nil.
func (v *Version) newMapper() backend.Mapper {
	c := v.info.Config
	if v.cache != nil || v.stacking != nil || c.GetSequenceBatching() != nil || c.GetEnsembleScheduling() != nil {
		return nil
	}
	for _, in := range c.GetInput() {
		if in.GetIsShapeTensor() { // its values decide which requests share a batch
			return nil
		}
	}
	if v.can.Strategy != nil || c.GetParameters()[strategyParameter] != nil {
		return nil // code of others looks at requests
	}
	return v.can.Mapper
}

// TakesDevices reports whether inputs reach the model on devices.
func (v *Version) TakesDevices() bool {
	return v.mapper != nil && v.mapper.TakesDevices()
}

// localize copies inputs in foreign memory to the server's memory, except those that the model's
// instances use in place. The inputs of a traced request are copied, because its tensors may be
// recorded.
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

// keepPlaces keeps a request's places for outputs only if the model's instances may write there and
// nothing on the way back needs the bytes: the tensors of a traced request may be recorded.
// Otherwise the front end writes the outputs.
func (v *Version) keepPlaces(req *infer.Request) {
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
