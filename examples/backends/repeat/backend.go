// Package repeat is a decoupled backend that sends responses after Execute has returned,
// alternating between requests. For element i of IN, a model waits DELAY[i] ms and sends OUT =
// IN[i], IDX = i; at the end it sends only the final flag. Execute itself waits WAIT ms, so that
// clients control how many requests run at once.
package repeat

import (
	"context"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// New initializes the backend.
func New(*sdk.BackendEnv) (sdk.Backend, error) { return backend{}, nil }

type backend struct{}

func (backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	if err := check(env.Config()); err != nil {
		return nil, err
	}
	return &model{}, nil
}

func (backend) Close() {}

type model struct{}

func (m *model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	ctx, stop := context.WithCancel(context.Background())
	return &instance{log: env.Log, statistics: env.Statistics, ctx: ctx, stop: stop}, nil
}

func (m *model) Close() {}

// check returns an error unless the config suits this backend.
func check(config *kserve.ModelConfig) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.InvalidArg, format, args...) }
	in, out := config.Input, config.Output
	switch {
	case config.MaxBatchSize != 0:
		return refuse("repeat backend only supports models with max_batch_size == 0")
	case len(in) != 3:
		return refuse("expected 3 inputs, got %d", len(in))
	case len(out) != 2:
		return refuse("expected 2 outputs, got %d", len(out))
	}
	for _, t := range []struct{ role, want, got string }{
		{"first input", "IN", in[0].Name}, {"second input", "DELAY", in[1].Name}, {"third input", "WAIT", in[2].Name},
		{"first output", "OUT", out[0].Name}, {"second output", "IDX", out[1].Name},
	} {
		if t.got != t.want {
			return refuse("expected %s tensor name to be %s, got %s", t.role, t.want, t.got)
		}
	}
	if len(in[0].Dims) != 1 {
		return refuse("expected IN shape to have one dimension, got %s", sdk.ShapeString(in[0].Dims))
	}
	if len(in[1].Dims) != 1 || in[0].Dims[0] != in[1].Dims[0] {
		return refuse("expected IN and DELAY shape to match, got %s and %s", sdk.ShapeString(in[0].Dims), sdk.ShapeString(in[1].Dims))
	}
	for _, t := range []struct {
		name string
		dims []int64
	}{{"WAIT", in[2].Dims}, {"OUT", out[0].Dims}, {"IDX", out[1].Dims}} {
		if len(t.dims) != 1 || t.dims[0] != 1 {
			return refuse("expected %s shape to be [1], got %s", t.name, sdk.ShapeString(t.dims))
		}
	}
	for _, t := range []struct {
		name      string
		want, got kserve.DataType
	}{
		{"IN", kserve.DataType_TYPE_INT32, in[0].DataType}, {"DELAY", kserve.DataType_TYPE_UINT32, in[1].DataType},
		{"WAIT", kserve.DataType_TYPE_UINT32, in[2].DataType},
		{"OUT", kserve.DataType_TYPE_INT32, out[0].DataType}, {"IDX", kserve.DataType_TYPE_UINT32, out[1].DataType},
	} {
		if t.got != t.want {
			return refuse("expected %s datatype to be %s, got %s", t.name, t.want.String()[len("TYPE_"):], t.got)
		}
	}
	return nil
}
