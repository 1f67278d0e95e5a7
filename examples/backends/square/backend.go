// Package square is the smallest decoupled backend: its models send n responses with OUT = n to a
// request with IN = n, and no response if n is 0. It sends them before Execute returns; package
// repeat also sends responses after that.
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

// check returns an error unless a tensor of the config suits this backend.
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

func (model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return instance{env.Statistics}, nil
}

func (model) Close() {}

type instance struct{ statistics sdk.Statistics }

func (i instance) Execute(ctx context.Context, requests []*sdk.Request) error {
	for _, request := range requests {
		i.answer(ctx, request)
		_ = request.Release(sdk.ReleaseAll)
	}
	return nil
}

func (instance) Close() {}

// answer sends all responses to a request and the final flag, and reports each of them.
func (i instance) answer(ctx context.Context, request *sdk.Request) {
	factory := request.Factory()
	defer factory.Close()
	sent, err := i.send(ctx, request, factory)
	begun := sdk.Now()
	if err != nil {
		if response, refused := factory.NewResponse(); refused == nil {
			_ = response.Send(sdk.SendFinal, err)
		}
	} else {
		_ = factory.SendFlags(sdk.SendFinal)
	}
	_ = i.statistics.Response(factory, sent, begun, 0, sdk.Now(), err)
}

// send sends the responses while a client waits for them, and returns their number.
func (i instance) send(ctx context.Context, request *sdk.Request, factory *sdk.ResponseFactory) (sent int, err error) {
	input, err := request.Input("IN")
	if err != nil {
		return 0, err
	}
	n := int32(binary.LittleEndian.Uint32(input.Data()))
	for ; sent < int(n) && !request.Cancelled() && ctx.Err() == nil; sent++ {
		begun := sdk.Now()
		response, err := factory.NewResponse()
		if err != nil {
			return sent, err
		}
		computed := sdk.Now()
		output, err := response.Output("OUT", sdk.Int32, []int64{1})
		if err != nil {
			return sent, err
		}
		copy(output, input.Data())
		if err := response.Send(0, nil); err != nil {
			return sent, err
		}
		_ = i.statistics.Response(factory, sent, begun, computed, sdk.Now(), nil)
	}
	return sent, nil
}
