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

// nativeSizes are the tensor sizes of the rows about backends in Go, in bytes.
var nativeSizes = []int{4, 1 << 20, 16 << 20}

// passOn is the identity model as a backend in Go. This program is also its plugin.
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

// nativeRounds is how often each row of the table is measured. The round with the least
// interference counts.
const nativeRounds = 7

// way is a row of the table about backends in Go, for each size.
type way struct {
	name     string
	identity *identity
}

// measureNative measures an identity model in Go, as a plugin and linked in, next to the one in
// Python, if there is one, and next to ping-pongs between two processes. It prints the table.
func (s *settings) measureNative(span time.Duration, python *identity) (err error) {
	var ways []way
	if python != nil {
		ways = append(ways, way{"identity in Python", python})
	}
	for _, in := range []struct {
		name string
		open func() (*identity, error)
	}{
		{"identity in Go, a plugin", startPlugin},
		{"identity in Go, linked in", startLinked},
	} {
		i, err := in.open()
		if err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		defer func() { err = errors.Join(err, i.close()) }()
		ways = append(ways, way{in.name, i})
	}
	// The rows take turns, so that other activity on the machine affects all of them.
	var floors floors
	directory, err := os.MkdirTemp("", "pingpong")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	if err := floors.compile(directory); err != nil {
		return err
	}
	rows := make([]nativeRow, len(ways)*len(nativeSizes))
	for range nativeRounds {
		if err := floors.measure(span / nativeRounds); err != nil {
			return err
		}
		for at := range rows {
			w, n := ways[at/len(nativeSizes)], nativeSizes[at%len(nativeSizes)]
			times, err := w.identity.measureBatch(span/nativeRounds, 1, n)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rows[at].best(nativeRow{
				p50: times.Quantile(0.5), p99: times.Quantile(0.99), cpu: times.CPUEach(), switches: times.SwitchesEach(),
			})
		}
	}
	var table measure.Table
	table.Row("µs", "p50", "p99", "CPU", "switches", "/ pipes in Go", "/ futex in C", "/ yields in C", "/ Python")
	floors.table(&table)
	for at, row := range rows {
		w, n := ways[at/len(nativeSizes)], nativeSizes[at%len(nativeSizes)]
		var beside any = ""
		if python != nil && w.identity != python {
			beside = float64(row.p50) / float64(rows[at%len(nativeSizes)].p50)
		}
		table.Row(append(row.cells(w.name+", "+measure.Size(n)), append(floors.ratios(row.p50), beside)...)...)
	}
	return table.Write(os.Stdout)
}

// nativeRow holds the results of one row, per round trip.
type nativeRow struct {
	p50, p99, cpu time.Duration
	switches      float64
}

// best keeps the round with the lower median.
func (r *nativeRow) best(round nativeRow) {
	if r.p50 == 0 || round.p50 < r.p50 {
		*r = round
	}
}

func (r *nativeRow) cells(name string) []any { return []any{name, r.p50, r.p99, r.cpu, r.switches} }

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
