// Command nereid_broken is a plugin that breaks the rule in its setting "break", or none without
// it.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(open) }

type broken struct{ way string }

func open(env *sdk.BackendEnv) (sdk.Backend, error) { return broken{env.Settings["break"]}, nil }

func (broken) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (b broken) NewModel(*sdk.ModelEnv) (sdk.Model, error) {
	if b.way == "hooks" {
		return nil, errors.New("no, thanks")
	}
	return b, nil
}

func (b broken) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return b, nil }

func (broken) Close() {}

func (b broken) Execute(_ context.Context, requests []*sdk.Request) error {
	switch b.way {
	case "panics":
		panic("boo")
	case "exit":
		os.Exit(3)
	}
	for _, r := range requests {
		kind := sdk.Int32
		if b.way == "outputs" {
			kind = sdk.Uint32
		}
		response, err := r.NewResponse()
		if err != nil {
			return err
		}
		factory := r.Factory()
		input, err := r.Input("IN")
		if err == nil {
			var out []byte
			if out, err = response.Output("OUT", kind, input.Shape()); err == nil {
				copy(out, input.Data())
			}
		}
		_ = response.Send(sdk.SendFinal, err)
		if b.way == "one-answer" {
			_ = factory.SendFlags(sdk.SendFinal)
		}
		_ = r.Release(sdk.ReleaseAll)
		if b.way == "one-release" {
			_ = r.Release(sdk.ReleaseAll)
		}
	}
	if b.way == "nothing-taken" {
		return errors.New("no more")
	}
	return nil
}
