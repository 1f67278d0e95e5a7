package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/stub"
)

// hops is a registry with models that call the identity model.
type hops struct {
	pool       *shm.Pool
	supervisor *process.Supervisor
	backend    *python.Backend
	registry   *models.Registry
	pids       []int
}

// measureHops measures the cost of a call between models (BLS): the round trip from the caller's
// stub to the callee, next to a direct call of the callee.
func (s *settings) measureHops(span time.Duration, ping time.Duration, table *measure.Table) (err error) {
	h, err := s.startHops()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, n := range []int{16, 1 << 20} {
		direct, err := h.measure(span, "identity", n, 0)
		if err != nil {
			return err
		}
		row := func(name string, times measure.Times, beside string) {
			p50 := times.Quantile(0.5)
			table.Row(name, p50, times.Quantile(0.99), times.CPUEach(), float64(p50)/float64(ping), "", "")
			table.Row(beside, fmt.Sprintf("%.2f", float64(p50-direct.Quantile(0.5))/float64(direct.Quantile(0.5))), "",
				fmt.Sprintf("%.2f", float64(times.CPUEach()-direct.CPUEach())/float64(direct.CPUEach())), "", "", "")
		}
		p50 := direct.Quantile(0.5)
		table.Row("a model through the registry, "+measure.Size(n), p50, direct.Quantile(0.99), direct.CPUEach(), float64(p50)/float64(ping), "", "")
		times, err := h.measure(span, "caller", n, 0)
		if err != nil {
			return err
		}
		row("a model that calls it, "+measure.Size(n), times, "  the call, in times of the model alone")
		if err := h.measureSteps(span, n, ping, table); err != nil {
			return err
		}
		if n > inline {
			continue
		}
		for _, calls := range []int64{1, 8, 100} {
			times, err := h.measure(span, "gatherer", n, calls)
			if err != nil {
				return err
			}
			row(fmt.Sprintf("%d calls gathered, %s", calls, measure.Size(n)), times, "  the calls, in times of the model alone")
		}
	}
	return h.measureBatches(span, table)
}

func (s *settings) startHops() (*hops, error) {
	region, err := shm.NewRegionUpTo(shm.Memfd{}, poolBytes, 256<<20, shm.ReadWrite)
	if err != nil {
		return nil, fmt.Errorf("make memory for requests: %w", err)
	}
	h := &hops{}
	if h.pool, err = shm.NewPool(region, shm.PoolConfig{}); err != nil {
		return nil, fmt.Errorf("make memory for requests: %w", err)
	}
	values := map[string]string{}
	if s.python != "" {
		values["python-executable"] = s.python
	}
	config, err := python.ParseConfig(values)
	if err != nil {
		return nil, err
	}
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	counters := metrics.New(metrics.Config{})
	h.supervisor, err = process.New(process.Environment{
		Requests: h.pool, Log: log,
		LogLevels: func() process.LogLevels { return process.LogLevels{Warning: true, Error: true} },
		Metrics:   counters,
	})
	if err != nil {
		return nil, err
	}
	h.backend, err = python.New(python.Environment{Supervisor: h.supervisor, Config: config, Files: []fs.FS{stub.Files, pyutils.Files}, Log: log})
	if err != nil {
		return nil, err
	}
	opened, err := repository.Open([]string{"bench/roundtrip/hops"}, repository.Options{})
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	defer opened.Close()
	h.registry = models.NewRegistry(models.RegistryConfig{
		Repository: opened,
		Settings:   version.Settings{Backends: map[string]backend.Backend{"python": h.backend}, Metrics: counters, Log: log},
	})
	if err := h.registry.Start(context.Background()); err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.pids, err = measure.Tree(os.Getpid())
	return h, err
}

func (h *hops) close() error {
	var err error
	if h.registry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = h.registry.Shutdown(ctx)
	}
	h.backend.Close()
	h.supervisor.Close()
	h.pool.Close()
	return err
}

// measure makes a model execute requests of n bytes, one after another.
func (h *hops) measure(span time.Duration, model string, n int, calls int64) (measure.Times, error) {
	var failure error
	send := func(r *infer.Response) {
		switch {
		case r.Err != nil:
			failure = r.Err
		case len(r.Outputs) != 1 || len(r.Outputs[0].Data) != n:
			failure = fmt.Errorf("%s: got %d outputs, want one of %d bytes", model, len(r.Outputs), n)
		}
		r.Release()
	}
	content := bytes.Repeat([]byte{7}, n)
	return measure.WarmRounds(span, h.pids, func() error {
		r := &infer.Request{Model: model, Version: infer.LatestVersion, Inputs: []infer.Tensor{
			{Name: "INPUT0", DataType: infer.FP32, Shape: []int64{int64(n / 4)}, Data: content},
		}}
		if calls > 0 {
			r.Parameters = []infer.Parameter{{Name: "calls", Kind: infer.IntParameter, Int: calls}}
		}
		if n > inline {
			block, err := h.pool.Alloc(n)
			if err != nil {
				return err
			}
			defer block.Release()
			r.Inputs[0].Data, r.Inputs[0].Memory = block.Bytes(), block
		}
		if err := h.registry.Infer(context.Background(), r, send); err != nil {
			return err
		}
		return failure
	})
}
