package batching

import (
	"strconv"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Strategy decides which requests share a batch, beyond the rules of the batcher. It can exclude a
// request, which then begins the next batch. A backend supplies it for its model
// (backend.Strategist), an embedder by name (version.Settings); Volume and Single come with the
// server.
type Strategy = backend.Strategy

// VolumeParameter is the model parameter that Volume reads.
const VolumeParameter = "MAX_BATCH_VOLUME_BYTES"

// Volume is the strategy that limits the bytes of all inputs of a batch to the model's parameter
// MAX_BATCH_VOLUME_BYTES. A larger request is executed by itself.
func Volume(config *kserve.ModelConfig) (Strategy, error) {
	if len(config.GetParameters()) == 0 {
		return nil, infer.Errorf(infer.NotFound, "Unable to find parameters in model config")
	}
	limit, found := config.GetParameters()[VolumeParameter]
	if !found {
		return nil, infer.Errorf(infer.NotFound, "Unable to find %s parameter in model config", VolumeParameter)
	}
	text := limit.GetStringValue()
	most, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArg, "failed to convert '%s' to unsigned int64", text)
	}
	return volume(most), nil
}

// volume is the limit of Volume in bytes.
type volume uint64

// Begin implements Strategy.
func (v volume) Begin() func(*infer.Request) bool {
	left, over := uint64(v), false
	return func(req *infer.Request) bool {
		var bytes uint64
		for i := range req.Inputs {
			bytes += uint64(req.Inputs[i].Size())
		}
		if over = over || bytes > left; over { // also if the first request is too large
			return false
		}
		left -= bytes
		return true
	}
}

// Single is the strategy with one request in each batch.
func Single(*kserve.ModelConfig) (Strategy, error) { return single{}, nil }

type single struct{}

// Begin implements Strategy.
func (single) Begin() func(*infer.Request) bool {
	return func(*infer.Request) bool { return false }
}
