package strategy

import (
	"strconv"

	"github.com/nereid-serving/nereid/sdk"
)

// volumeParameter is the model parameter with the limit.
const volumeParameter = "MAX_BATCH_VOLUME_BYTES"

// Volume returns a backend that wraps another one. Its models add requests to a batch until their
// inputs have MAX_BATCH_VOLUME_BYTES bytes, a parameter of the model.
func Volume(of sdk.New) sdk.New {
	return with(of, func(env *sdk.ModelEnv) (begin, error) {
		limit, err := volumeOf(env)
		if err != nil {
			return nil, err
		}
		return func() func(int64) bool {
			left := limit
			return func(bytes int64) bool {
				if uint64(bytes) > left {
					return false
				}
				left -= uint64(bytes)
				return true
			}
		}, nil
	})
}

// volumeOf parses the limit.
func volumeOf(env *sdk.ModelEnv) (uint64, error) {
	parameters := env.Config().Parameters
	if len(parameters) == 0 {
		return 0, sdk.Errorf(sdk.NotFound, "Unable to find parameters in model config")
	}
	parameter, ok := parameters[volumeParameter]
	if !ok {
		return 0, sdk.Errorf(sdk.NotFound, "Unable to find %s parameter in model config", volumeParameter)
	}
	limit, err := strconv.ParseUint(parameter.StringValue, 10, 64)
	if err != nil {
		return 0, sdk.Errorf(sdk.InvalidArg, "failed to convert '%s' to unsigned int64", parameter.StringValue)
	}
	return limit, nil
}

// Single returns a backend that wraps another one. Its models execute each request alone.
func Single(of sdk.New) sdk.New {
	return with(of, func(*sdk.ModelEnv) (begin, error) {
		return func() func(int64) bool {
			empty := true
			return func(int64) bool {
				include := empty
				empty = false
				return include
			}
		}, nil
	})
}

// begin is the type of Strategist.BeginBatch.
type begin func() (include func(bytes int64) bool)

// with returns a backend whose models have a strategy, which choose returns for each.
func with(of sdk.New, choose func(*sdk.ModelEnv) (begin, error)) sdk.New {
	return func(env *sdk.BackendEnv) (sdk.Backend, error) {
		inner, err := of(env)
		if err != nil {
			return nil, err
		}
		return &backend{inner, choose}, nil
	}
}

type backend struct {
	sdk.Backend
	choose func(*sdk.ModelEnv) (begin, error)
}

func (b *backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	begin, err := b.choose(env)
	if err != nil {
		return nil, err
	}
	inner, err := b.Backend.NewModel(env)
	if err != nil {
		return nil, err
	}
	return &model{inner, begin}, nil
}

// model is the inner backend's model, and a Strategist.
type model struct {
	sdk.Model
	begin begin
}

func (m *model) BeginBatch() func(int64) bool { return m.begin() }
