package integration

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/stub"
)

// stormModel returns the number that its version's file "generation" contained at load time.
const stormModel = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "generation")
        with open(path) as f:
            self.generation = np.array([int(f.read())], np.int64)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.generation)]) for _ in requests]
`

const stormConfig = `
backend: "python"
input [ { name: "IN" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] } ]
`

// stormSubject is a model that is loaded, unloaded and used concurrently.
type stormSubject struct {
	name     string
	file     string // "generation"; "" for an ensemble
	unloaded bool   // the model is sometimes unloaded
	// last is the model whose output an ensemble returns. A load of the ensemble loads it too.
	last *stormSubject

	mu      sync.Mutex
	written int64 // the generation in the file
	// floor is the oldest generation that may respond: that in the file when the latest successful
	// load began.
	floor int64
	// changes counts the beginnings and ends of loads and unloads. during counts those in progress.
	changes, during int
	// gone is true from the end of an unload until the beginning of a load, if no other change was
	// in progress.
	gone bool

	answers, refusals atomic.Int64
}

// write writes a new generation for the next load.
func (s *stormSubject) write() error {
	if s.last != nil {
		s = s.last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.file + "~"
	if err := os.WriteFile(fresh, []byte(fmt.Sprint(s.written+1)), 0o644); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.file); err != nil {
		return err
	}
	s.written++
	return nil
}

// regroup sets another number of instances for the next load.
func (s *stormSubject) regroup(count int) error {
	if s.last != nil {
		s = s.last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := filepath.Join(filepath.Dir(filepath.Dir(s.file)), "config.pbtxt")
	text := fmt.Sprintf("%s instance_group { kind: KIND_CPU count: %d }\n", stormConfig, count)
	if err := os.WriteFile(place+"~", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(place+"~", place)
}

// begin is called before a load or unload. The returned function is called after it.
func (s *stormSubject) begin(load bool) (end func(error)) {
	if s.last == nil || !load {
		return s.beginOne(load)
	}
	last, own := s.last.beginOne(true), s.beginOne(true)
	return func(err error) {
		own(err)
		last(errors.New("it may have been served from what was there before"))
	}
}

func (s *stormSubject) beginOne(load bool) (end func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.during++
	began, at := s.changes, s.written
	if load {
		s.gone = false
	}
	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.during--
		if err == nil && load {
			s.floor = max(s.floor, at)
		}
		if err == nil && !load && s.changes == began && s.during == 0 {
			s.gone = true
		}
		s.changes++
	}
}

// ask makes one request. The response must have a generation that was live during the request.
func (s *stormSubject) ask(ctx context.Context, r *models.Registry) error {
	s.mu.Lock()
	floor, gone, changes := s.floor, s.gone, s.changes
	s.mu.Unlock()
	var got int64
	var failure error
	err := r.Infer(ctx, &infer.Request{
		Model: s.name, Version: infer.LatestVersion,
		Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int64, Shape: []int64{1}, Data: make([]byte, 8)}},
	}, func(response *infer.Response) {
		if response.Err != nil {
			failure = response.Err
		} else {
			got = int64(binary.LittleEndian.Uint64(response.Outputs[0].Data))
		}
		response.Release()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = cmp.Or(err, failure); err != nil {
		s.refusals.Add(1)
		switch code := infer.AsError(err).Code; {
		case !s.unloaded:
			return fmt.Errorf("%s is never unloaded: %w", s.name, err)
		case code == infer.NotFound, code == infer.Unavailable:
			return nil
		default:
			return fmt.Errorf("%s: got %w, want not found or unavailable", s.name, err)
		}
	}
	s.answers.Add(1)
	switch {
	case s.last != nil && !gone:
	case s.last == nil && (got < floor || got > s.written):
		return fmt.Errorf("%s: generation %d answered, want one of %d to %d", s.name, got, floor, s.written)
	case gone && s.changes == changes:
		return fmt.Errorf("%s: generation %d answered although the model was unloaded", s.name, got)
	}
	return nil
}

// untouched reports whether the model has sent no response or has not been reloaded.
func (s *stormSubject) untouched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers.Load() == 0 || s.last == nil && s.floor == 0
}

// stormRegistry serves a repository in this process, with real stubs.
func stormRegistry(t *testing.T, root string) *models.Registry {
	t.Helper()
	region, err := shm.NewRegionUpTo(shm.Memfd{}, 1<<30, 256<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := python.ParseConfig(map[string]string{"python-executable": testkit.Python(t).Path})
	if err != nil {
		t.Fatal(err)
	}
	counters, log := metrics.New(metrics.Config{}), zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel)
	supervisor, err := process.New(process.Environment{
		Requests: pool, Log: log,
		LogLevels: func() process.LogLevels { return process.LogLevels{Warning: true, Error: true} }, Metrics: counters,
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := python.New(python.Environment{Supervisor: supervisor, Config: config, Files: []fs.FS{stub.Files, pyutils.Files}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := models.NewRegistry(models.RegistryConfig{
		Settings:   version.Settings{Backends: map[string]backend.Backend{"python": b}, Metrics: counters, Log: log},
		Repository: opened, Explicit: true, Startup: []string{"*"}, StrictReadiness: true,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		opened.Close()
		b.Close()
		supervisor.Close()
		pool.Close()
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStormOfLoadsAnswersClearly runs 64 workers that load, unload, change and use models for 30 s.
// Each response must come from a version that was live during its request, or be a 404 or 503. A
// model that is reloaded but never unloaded must always respond.
func TestStormOfLoadsAnswersClearly(t *testing.T) {
	testkit.Story(t)
	span := 30 * time.Second
	if !testkit.Long() {
		span = 3 * time.Second
	}
	files := map[string]string{}
	names := []string{"steady", "moves0", "moves1", "moves2"}
	for _, name := range names {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"], files[name+"/1/generation"] = stormConfig, stormModel, "0"
	}
	files["pair/config.pbtxt"], files["pair/1/placeholder"] = `
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] } ]
ensemble_scheduling {
  step { model_name: "steady" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "BETWEEN" } }
  step { model_name: "moves0" model_version: -1 input_map { key: "IN" value: "BETWEEN" } output_map { key: "OUT" value: "OUT" } }
}
`, ""
	root := writeFiles(t, files)
	r := stormRegistry(t, root)
	var subjects []*stormSubject
	for _, name := range names {
		subjects = append(subjects, &stormSubject{name: name, file: filepath.Join(root, name, "1", "generation"), unloaded: name != "steady"})
	}
	subjects = append(subjects, &stormSubject{name: "pair", unloaded: true, last: subjects[1]})
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	late, cancelLate := context.WithTimeout(t.Context(), span+startLimit)
	defer cancelLate()
	// over reports whether the storm has lasted long enough for all models, or too long.
	over := func() bool {
		return late.Err() != nil || ctx.Err() != nil && !slices.ContainsFunc(subjects, (*stormSubject).untouched)
	}
	var all sync.WaitGroup
	var wrong atomic.Int64
	var loads, unloads atomic.Int64
	work := func(worker int) error {
		random := rand.New(rand.NewPCG(uint64(worker), 5))
		for !over() && wrong.Load() < 10 {
			s := subjects[random.IntN(len(subjects))]
			var err error
			switch what := random.IntN(1000); {
			case worker >= 16 || what < 700:
				err = s.ask(t.Context(), r)
			case what < 900:
				switch {
				case what < 800:
					err = s.write()
				case what < 850:
					err = s.regroup(1 + random.IntN(2))
				}
				if err != nil {
					return err
				}
				end := s.begin(true)
				err = r.Load(t.Context(), s.name, "", nil)
				end(err)
				loads.Add(1)
			case s.unloaded:
				end := s.begin(false)
				err = r.Unload(t.Context(), s.name, false)
				end(err)
				unloads.Add(1)
			}
			if err != nil {
				wrong.Add(1)
				t.Errorf("worker %d: %v", worker, err)
			}
			if what := random.IntN(100); what == 0 {
				_, _ = r.Index(false)
				_, _ = r.Statistics("", infer.LatestVersion)
				_, _ = r.Ready(t.Context())
			}
		}
		return nil
	}
	for worker := range 64 {
		all.Go(func() {
			if err := work(worker); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var report strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&report, " %s: %d answers, %d refusals, %d generations.", s.name, s.answers.Load(), s.refusals.Load(), s.written)
		if s.untouched() {
			t.Errorf("%s has not answered, or was not loaded anew", s.name)
		}
	}
	t.Logf("%d loads, %d unloads.%s", loads.Load(), unloads.Load(), &report)
	if loads.Load() == 0 || unloads.Load() == 0 {
		t.Error("there was no storm")
	}
	for _, s := range subjects {
		end := s.begin(true)
		err := r.Load(t.Context(), s.name, "", nil)
		end(err)
		if err != nil {
			t.Error(err)
		}
		if err := s.ask(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
}
