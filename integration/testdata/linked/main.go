// Command linked is a server with the backend "probe". Its models copy IN, INT32 of any length, to OUT.
// These parameters change a model:
//
//   - "panics" names a hook that panics: Execute does so if the first number is 13. The setting
//     "panics" does the same for Backend.Close.
//   - "exits" names a hook that exits its goroutine.
//   - "sends" makes the model decoupled, with as many responses as the first number says.
//   - "rounds" does the same with one execution per response, like an iterative sequence.
//   - "calls" names a model to which it passes its input.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

func main() { cli.Main(nereid.WithBackend("probe", initialize)) }

type backend struct{ env *sdk.BackendEnv }

func initialize(env *sdk.BackendEnv) (sdk.Backend, error) {
	env.Log.Info(fmt.Sprintf("probe: initialized, default-max-batch-size is %s, color is %s", env.Settings["default-max-batch-size"], env.Settings["color"]))
	return backend{env}, nil
}

func (backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (b backend) Close() {
	if b.env.Settings["panics"] == "Backend.Close" {
		panic("as the setting says")
	}
}

type model struct {
	env    *sdk.ModelEnv
	served sdk.Metric
}

// parameter returns a parameter of the model's config.
func parameter(env *sdk.ModelEnv, name string) string {
	return env.Config().GetParameters()[name].GetStringValue()
}

func panicIn(env *sdk.ModelEnv, hook string) {
	if parameter(env, "panics") == hook {
		panic("as the parameter says")
	}
	if parameter(env, "exits") == hook {
		runtime.Goexit()
	}
}

func (backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	panicIn(env, "NewModel")
	env.Log.Info("probe: model " + env.Name + " initialized")
	if env.AutoComplete && len(env.Config().GetInput()) == 0 {
		c := proto.Clone(env.Config()).(*kserve.ModelConfig)
		c.Input = []*kserve.ModelInput{{Name: "IN", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}}}
		c.Output = []*kserve.ModelOutput{{Name: "OUT", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}}}
		if parameter(env, "sends") != "" {
			c.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
		} else {
			c.MaxBatchSize = 4
		}
		if err := env.SetConfig(c); err != nil {
			return nil, err
		}
	}
	family, err := env.Metrics.NewFamily(sdk.Counter, "probe_requests", "Requests of probes.")
	if err != nil {
		return nil, err
	}
	m := &model{env: env}
	if m.served, err = family.NewMetric(map[string]string{"of": env.Name}); err != nil {
		return nil, err
	}
	env.ReportMemory(12345)
	return m, nil
}

func (m *model) Close() {
	m.env.Log.Info("probe: model " + m.env.Name + " closed")
	panicIn(m.env, "Model.Close")
}

type instance struct {
	*model
	log     *slog.Logger
	running sync.WaitGroup
	rounds  map[uint64]uint32 // number of rounds by correlation id
}

func (m *model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	panicIn(m.env, "NewInstance")
	env.Log.Info("probe: instance " + env.Name + " initialized, policy " + env.HostPolicy)
	return &instance{model: m, log: env.Log, rounds: make(map[uint64]uint32)}, nil
}

func (in *instance) Close() {
	in.running.Wait()
	panicIn(in.env, "Instance.Close")
}

func (in *instance) Ready(context.Context) error {
	panicIn(in.env, "Ready")
	return nil
}

func (in *instance) Execute(ctx context.Context, requests []*sdk.Request) error {
	_ = in.served.Increment(float64(len(requests)))
	for _, r := range requests {
		input, err := r.Input("IN")
		if err != nil {
			return err
		}
		var first uint32
		if data := input.Data(); len(data) >= 4 {
			first = binary.LittleEndian.Uint32(data)
		}
		if first == 13 {
			panicIn(in.env, "Execute")
		}
		if parameter(in.env, "rounds") != "" {
			in.round(r, first)
			continue
		}
		if parameter(in.env, "sends") == "" {
			in.answer(ctx, r, input)
			_ = r.Release(sdk.ReleaseAll)
			continue
		}
		in.running.Go(func() {
			in.send(r, first)
			_ = r.Release(sdk.ReleaseAll)
		})
	}
	return nil
}

// answer sends the one response to a request.
func (in *instance) answer(ctx context.Context, r *sdk.Request, input *sdk.Input) {
	p, err := r.NewResponse()
	if err != nil {
		return
	}
	if other := parameter(in.env, "calls"); other != "" {
		err = in.call(ctx, other, p, input)
	} else {
		err = p.Forward("OUT", nil, input)
	}
	if err == nil {
		err = p.SetParameter("by", "probe")
	}
	_ = p.Send(sdk.SendFinal, err)
}

// call calls another model.
func (in *instance) call(ctx context.Context, other string, p *sdk.Response, input *sdk.Input) error {
	got, err := in.env.Server.Infer(ctx, &sdk.InferRequest{Model: other, Inputs: []sdk.Tensor{{Name: "IN", Of: input}}})
	if err != nil {
		return err
	}
	defer got.Release()
	out := got.Output("OUT")
	data, err := p.Output("OUT", out.DataType, out.Shape)
	copy(data, out.Data)
	return err
}

// round sends the next response to a request, and reschedules the request until there have been n
// responses.
func (in *instance) round(r *sdk.Request, n uint32) {
	id, err := r.CorrelationNumber()
	if r.Flags()&sdk.SequenceStart != 0 {
		in.rounds[id] = 0
	}
	i := in.rounds[id]
	in.rounds[id]++
	if i < n {
		if p, failure := r.NewResponse(); failure == nil {
			data, failure := p.Output("OUT", sdk.Int32, []int64{1})
			if failure == nil {
				binary.LittleEndian.PutUint32(data, i)
			} else {
				err = failure
			}
			_ = p.Send(0, err)
		}
		if failure := r.Release(sdk.ReleaseReschedule); failure == nil {
			return
		}
	}
	delete(in.rounds, id)
	_ = r.Factory().SendFlags(sdk.SendFinal)
	_ = r.Release(sdk.ReleaseAll)
}

// send sends n responses and then the final flag.
func (in *instance) send(r *sdk.Request, n uint32) {
	for i := range n {
		p, err := r.NewResponse()
		if err != nil {
			return
		}
		data, err := p.Output("OUT", sdk.Int32, []int64{1})
		if err == nil {
			binary.LittleEndian.PutUint32(data, i)
		}
		if err := p.Send(0, err); err != nil {
			break // its client has gone
		}
	}
	_ = r.Factory().SendFlags(sdk.SendFinal)
}
