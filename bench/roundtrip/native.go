package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/linked"
)

// nativeSizes are the bytes of the tensors of the rows about backends in Go.
var nativeSizes = []int{4, 1 << 20, 16 << 20}

// passOn is the identity model as a backend in Go: this program is its plugin, too.
type passOn struct{}

func newPassOn(*sdk.BackendEnv) (sdk.Backend, error) { return passOn{}, nil }

func (passOn) Attributes() sdk.Attributes                         { return sdk.Attributes{} }
func (passOn) NewModel(*sdk.ModelEnv) (sdk.Model, error)          { return passOn{}, nil }
func (passOn) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return passOn{}, nil }
func (passOn) Close()                                             {}

// Execute implements sdk.Instance.
func (passOn) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		err := answer(r)
		if err != nil {
			return err
		}
	}
	return nil
}

func answer(r *sdk.Request) error {
	input, err := r.InputAt(0)
	if err != nil {
		return err
	}
	response, err := r.NewResponse()
	if err != nil {
		return err
	}
	if err := response.Forward("OUTPUT0", nil, input); err != nil {
		return err
	}
	return errors.Join(response.Send(sdk.SendFinal, nil), r.Release(sdk.ReleaseAll))
}

// measureNative measures an identity model in Go, as a plugin and linked in, beside the one in Python.
func (s *settings) measureNative(span time.Duration, ping time.Duration, python *identity, table *measure.Table) error {
	beside := make(map[int]time.Duration) // of Python
	for _, way := range []struct {
		name string
		open func() (*identity, error)
	}{
		{"identity in Python", func() (*identity, error) { return python, nil }},
		{"identity in Go, a plugin", startPlugin},
		{"identity in Go, linked in", startLinked},
	} {
		i, err := way.open()
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		for _, n := range nativeSizes {
			times, err := i.measureBatch(span, 1, n)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", way.name, err), i.close())
			}
			p50 := times.Quantile(0.5)
			var ratio any = ""
			if i == python {
				beside[n] = p50
			} else {
				ratio = float64(p50) / float64(beside[n])
			}
			table.Row(way.name+", "+measure.Size(n), p50, times.Quantile(0.99), times.CPUEach(), float64(p50)/float64(ping), "", ratio)
		}
		if i != python {
			if err := i.close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// startPlugin starts this program as the plugin of an instance.
func startPlugin() (*identity, error) {
	i, err := hosting(floats)
	if err != nil {
		return nil, err
	}
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	i.native = native.New(native.Environment{
		Supervisor: i.supervisor, Log: log,
		Settings: func(string) (map[string]string, string) { return nil, "{}" },
	})
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err == nil {
		err = i.openNative(i.native, program)
	}
	if err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

// startLinked runs the backend in this process.
func startLinked() (*identity, error) {
	i, err := hosting(floats)
	if err != nil {
		return nil, err
	}
	if err := i.openNative(linked.New("pass_on", newPassOn, linked.Config{}), ""); err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

func (i *identity) openNative(b backend.Backend, program string) error {
	config := i.config("pass_on")
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	opened, err := b.Open(backend.Env{Name: config.GetName(), Version: 1, Directory: os.TempDir(), Config: config, Plugin: program})
	if err != nil {
		return err
	}
	if err := opened.Start(context.Background(), config, text, uncounted{}); err != nil {
		return err
	}
	i.model, i.instance = opened, opened.Instances()[0]
	return nil
}

// config describes the identity model for a backend.
func (i *identity) config(name string) *kserve.ModelConfig {
	return &kserve.ModelConfig{
		Name: "identity", Backend: name,
		Input:  []*kserve.ModelInput{{Name: "INPUT0", DataType: i.dataType, Dims: []int64{-1}}},
		Output: []*kserve.ModelOutput{{Name: "OUTPUT0", DataType: i.dataType, Dims: []int64{-1}}},
		InstanceGroup: []*kserve.ModelInstanceGroup{{
			Name: "identity_0", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: 1,
		}},
	}
}

var _ process.Metrics = uncounted{}
