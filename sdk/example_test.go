package sdk_test

import (
	"context"
	"encoding/binary"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// squares is a complete backend whose models respond with the square of each input value. Its main
// function is plugin.Serve(newSquares) or cli.Main(nereid.WithBackend("squares", newSquares)).
type squares struct{}

func newSquares(env *sdk.BackendEnv) (sdk.Backend, error) {
	env.Log.Info("squares: initialized")
	return squares{}, nil
}

func (squares) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (squares) Close() {}

// NewModel completes the model's config, so that a config file is optional.
func (squares) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	if env.AutoComplete {
		c := proto.Clone(env.Config()).(*kserve.ModelConfig)
		c.Input = []*kserve.ModelInput{{Name: "IN", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}}}
		c.Output = []*kserve.ModelOutput{{Name: "OUT", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}}}
		c.MaxBatchSize = 0
		if err := env.SetConfig(c); err != nil {
			return nil, err
		}
	}
	if n := env.Config().GetMaxBatchSize(); n != 0 {
		return nil, sdk.Errorf(sdk.InvalidArg, "squares only supports models with max_batch_size == 0, got %d", n)
	}
	return &squaresModel{env}, nil
}

type squaresModel struct{ env *sdk.ModelEnv }

func (m *squaresModel) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return &squaresInstance{env}, nil
}

func (m *squaresModel) Close() {}

type squaresInstance struct{ env *sdk.InstanceEnv }

func (in *squaresInstance) Close() {}

// Execute responds to every request; an error affects only its own request.
func (in *squaresInstance) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		in.answer(r)
		if err := r.Release(sdk.ReleaseAll); err != nil {
			in.env.Log.Error(err.Error())
		}
	}
	return nil
}

func (in *squaresInstance) answer(r *sdk.Request) {
	p, err := r.NewResponse()
	if err != nil {
		return
	}
	if err := p.Send(sdk.SendFinal, square(r, p)); err != nil {
		in.env.Log.Error(err.Error())
	}
}

// square fills in the output of a response.
func square(r *sdk.Request, p *sdk.Response) error {
	input, err := r.Input("IN")
	if err != nil {
		return err
	}
	out, err := p.Output("OUT", sdk.Int32, input.Shape())
	if err != nil {
		return err
	}
	for data := input.Data(); len(data) > 0; data, out = data[4:], out[4:] {
		n := binary.LittleEndian.Uint32(data)
		binary.LittleEndian.PutUint32(out, n*n)
	}
	return nil
}

// A complete backend in one file: see newSquares.
func Example() {
	var initialize sdk.New = newSquares
	_ = initialize
}

// An instance of a decoupled model that counts in other goroutines. Meanwhile it is free for the
// next batch; Close waits for unfinished requests.
type counter struct{ running sync.WaitGroup }

func (c *counter) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		c.running.Go(func() {
			count(r.Factory())
			_ = r.Release(sdk.ReleaseAll) // the factory no longer needs it
		})
	}
	return nil
}

func (c *counter) Close() { c.running.Wait() }

func count(f *sdk.ResponseFactory) {
	defer f.Close()
	for i := range uint32(3) {
		p, err := f.NewResponse()
		if err != nil {
			return
		}
		out, err := p.Output("IDX", sdk.Uint32, []int64{1})
		if err == nil {
			binary.LittleEndian.PutUint32(out, i)
		}
		if err := p.Send(0, err); err != nil {
			break // the client is gone
		}
	}
	_ = f.SendFlags(sdk.SendFinal)
}

func ExampleResponseFactory() {
	var instance sdk.Instance = &counter{}
	instance.Close()
}

// A model that calls another model passes its input on without a copy and returns the response.
func ExampleServer() {
	call := func(ctx context.Context, env *sdk.ModelEnv, r *sdk.Request) (*sdk.InferResponse, error) {
		input, err := r.Input("INPUT0")
		if err != nil {
			return nil, err
		}
		return env.Server.Infer(ctx, &sdk.InferRequest{
			Model: "addsub_python", ID: r.ID(), Inputs: []sdk.Tensor{{Name: "INPUT0", Of: input}}, Outputs: []string{"OUTPUT0"},
		}) // the receiver releases it
	}
	_ = call
}
