// Package identity is a backend whose models return their inputs as outputs, in the order of the
// config, with any types and shapes. Outputs share the bytes of the inputs, so nothing is copied.
// For a traced request it reports activities with the names that Triton's identity backend uses.
package identity

import (
	"context"

	"github.com/nereid-serving/nereid/sdk"
)

// New initializes the backend.
func New(*sdk.BackendEnv) (sdk.Backend, error) { return backend{}, nil }

type backend struct{}

func (backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	config := env.Config()
	if in, out := len(config.Input), len(config.Output); in != out {
		return nil, sdk.Errorf(sdk.InvalidArg, "expected as many outputs as inputs, got %d and %d", out, in)
	}
	m := &model{}
	for i, input := range config.Input {
		output := config.Output[i]
		if input.DataType != output.DataType {
			return nil, sdk.Errorf(sdk.InvalidArg, "expected input and output datatype to match, got %s and %s", input.DataType, output.DataType)
		}
		m.outputs = append(m.outputs, output.Name)
		m.inputs = append(m.inputs, input.Name)
	}
	return m, nil
}

func (backend) Close() {}

// model has the names of inputs and outputs; those at the same index belong together.
type model struct{ inputs, outputs []string }

func (m *model) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return instance{m}, nil }

func (m *model) Close() {}

type instance struct{ model *model }

// Execute handles each request alone, because without a computation a batch gains nothing.
func (i instance) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, request := range requests {
		_ = request.TraceActivity("CUSTOM_ACTIVITY_START", 0)
		response, err := request.NewResponse()
		if err == nil {
			err = i.forward(request, response)
			_ = request.TraceActivity("CUSTOM_SINGLE_ACTIVITY", 0)
			_ = response.Send(sdk.SendFinal, err)
		}
		_ = request.TraceActivity("CUSTOM_ACTIVITY_END", 0)
		_ = request.Release(sdk.ReleaseAll)
	}
	return nil
}

func (i instance) Close() {}

// forward adds the outputs. If the request lacks an optional input, the response lacks its output.
func (i instance) forward(request *sdk.Request, response *sdk.Response) error {
	for at, name := range i.model.inputs {
		input, err := request.Input(name)
		if err != nil {
			continue
		}
		if err := response.Forward(i.model.outputs[at], nil, input); err != nil {
			return err
		}
	}
	return nil
}
