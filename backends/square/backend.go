// Package square shows the least of a decoupled backend: to a request with IN = n its models send n responses with OUT = n,
// for 0 none. It sends them before Execute returns; package repeat goes on afterwards.
package square

import (
	"context"
	"encoding/binary"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// New initializes the backend.
func New(*sdk.BackendEnv) (sdk.Backend, error) { return backend{}, nil }

type backend struct{}

func (backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	config := env.Config()
	switch {
	case config.MaxBatchSize != 0:
		return nil, sdk.Errorf(sdk.InvalidArg, "square backend only supports models with max_batch_size == 0")
	case len(config.Input) != 1:
		return nil, sdk.Errorf(sdk.InvalidArg, "expected 1 input, got %d", len(config.Input))
	case len(config.Output) != 1:
		return nil, sdk.Errorf(sdk.InvalidArg, "expected 1 output, got %d", len(config.Output))
	case !config.GetModelTransactionPolicy().GetDecoupled():
		return nil, sdk.Errorf(sdk.InvalidArg, "square backend only supports models with a decoupled transaction policy")
	}
	input, output := config.Input[0], config.Output[0]
	if err := check("input", "IN", input.Name, input.Dims, input.DataType); err != nil {
		return nil, err
	}
	return model{}, check("output", "OUT", output.Name, output.Dims, output.DataType)
}

// check wants a tensor as models of this backend have it.
func check(kind, want, name string, dims []int64, dataType kserve.DataType) error {
	switch {
	case name != want:
		return sdk.Errorf(sdk.InvalidArg, "expected %s tensor name to be %s, got %s", kind, want, name)
	case len(dims) != 1 || dims[0] != 1:
		return sdk.Errorf(sdk.InvalidArg, "expected %s shape to be [1], got %s", want, sdk.ShapeString(dims))
	case dataType != kserve.DataType_TYPE_INT32:
		return sdk.Errorf(sdk.InvalidArg, "expected %s datatype to be INT32, got %s", want, dataType)
	}
	return nil
}

func (backend) Close() {}

type model struct{}

func (model) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return instance{}, nil }

func (model) Close() {}

type instance struct{}

func (instance) Execute(ctx context.Context, requests []*sdk.Request) error {
	for _, request := range requests {
		finish(request, send(ctx, request))
		_ = request.Release(sdk.ReleaseAll)
	}
	return nil
}

func (instance) Close() {}

// send sends the responses, as long as a client wants them.
func send(ctx context.Context, request *sdk.Request) error {
	input, err := request.Input("IN")
	if err != nil {
		return err
	}
	n := int32(binary.LittleEndian.Uint32(input.Data()))
	for sent := int32(0); sent < n && !request.Cancelled() && ctx.Err() == nil; sent++ {
		response, err := request.NewResponse()
		if err != nil {
			return err
		}
		output, err := response.Output("OUT", sdk.Int32, []int64{1})
		if err != nil {
			return err
		}
		copy(output, input.Data())
		if err := response.Send(0, nil); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the stream of a request: with its error, or by the final flag alone.
func finish(request *sdk.Request, failure error) {
	if failure == nil {
		factory := request.Factory()
		_ = factory.SendFlags(sdk.SendFinal)
		factory.Close()
	} else if response, err := request.NewResponse(); err == nil {
		_ = response.Send(sdk.SendFinal, failure)
	}
}
