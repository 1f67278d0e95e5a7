package recommended

import (
	"log/slog"
	"slices"

	"github.com/nereid-serving/nereid/sdk"
)

// model is one version of a model, as its config describes it.
type model struct {
	name          string
	input, output string
	dataType      sdk.DataType
	batching      bool // tensors have a batch dimension
	log           *slog.Logger
}

// newModel checks the config. Its error fails the load, and clients read it in the repository
// index.
func newModel(env *sdk.ModelEnv) (*model, error) {
	config := env.Config()
	if len(config.Input) != 1 {
		return nil, sdk.Errorf(sdk.InvalidArg, "model configuration must have 1 input")
	}
	if len(config.Output) != 1 {
		return nil, sdk.Errorf(sdk.InvalidArg, "model configuration must have 1 output")
	}
	input, output := config.Input[0], config.Output[0]
	if input.DataType != output.DataType {
		return nil, sdk.Errorf(sdk.InvalidArg, "expected input and output datatype to match, got %s and %s", input.DataType, output.DataType)
	}
	if input.Reshape != nil {
		return nil, sdk.Errorf(sdk.Unsupported, "reshape not supported for input tensor")
	}
	if output.Reshape != nil {
		return nil, sdk.Errorf(sdk.Unsupported, "reshape not supported for output tensor")
	}
	if !slices.Equal(input.Dims, output.Dims) {
		return nil, sdk.Errorf(sdk.InvalidArg, "expected input and output shape to match, got %s and %s", sdk.ShapeString(input.Dims), sdk.ShapeString(output.Dims))
	}
	return &model{
		name: env.Name, input: input.Name, output: output.Name, dataType: sdk.TypeOf(input.DataType),
		batching: config.MaxBatchSize > 0, log: env.Log,
	}, nil
}

func (m *model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return &instance{model: m, statistics: env.Statistics}, nil
}

func (m *model) Close() {}
