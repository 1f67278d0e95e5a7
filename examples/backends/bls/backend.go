// Package bls is a backend that calls other models. It sends each request to addsub_python and
// addsub_onnx concurrently, and responds with the sum from the first and the difference from the
// second.
package bls

import (
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
	return &model{env}, nil
}

func (backend) Close() {}

type model struct{ env *sdk.ModelEnv }

func (m *model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return &instance{server: m.env.Server, log: env.Log, statistics: env.Statistics}, nil
}

func (m *model) Close() {}

// check returns an error unless the config suits this backend.
func check(config *kserve.ModelConfig) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.InvalidArg, format, args...) }
	in, out := config.Input, config.Output
	switch {
	case config.MaxBatchSize != 0:
		return refuse("bls backend only supports models with max_batch_size == 0")
	case len(in) != 2:
		return refuse("expected 2 inputs, got %d", len(in))
	case len(out) != 2:
		return refuse("expected 2 outputs, got %d", len(out))
	}
	tensors := []struct {
		role, want, got string
		dims            []int64
		dataType        kserve.DataType
	}{
		{"first input", "INPUT0", in[0].Name, in[0].Dims, in[0].DataType},
		{"second input", "INPUT1", in[1].Name, in[1].Dims, in[1].DataType},
		{"first output", "OUTPUT0", out[0].Name, out[0].Dims, out[0].DataType},
		{"second output", "OUTPUT1", out[1].Name, out[1].Dims, out[1].DataType},
	}
	for _, t := range tensors {
		if t.got != t.want {
			return refuse("expected %s tensor name to be %s, got %s", t.role, t.want, t.got)
		}
	}
	for _, t := range tensors {
		if len(t.dims) != 1 {
			return refuse("expected %s shape to have one dimension, got %s", t.want, sdk.ShapeString(t.dims))
		}
	}
	for _, t := range tensors {
		if t.dataType != kserve.DataType_TYPE_FP32 {
			return refuse("expected %s datatype to be TYPE_FP32, got %s", t.want, t.dataType)
		}
	}
	return nil
}
