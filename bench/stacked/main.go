// Command stacked compares batches that the server merges into one request and splits again with
// batches that the model itself merges and splits with numpy. Run it in the root of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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

// inline is the size up to which a tensor travels inside the frame.
const inline = 4 << 10

// poolBytes is the address space of the memory for requests.
const poolBytes = 4 << 30

// kinds are the models, named by the side that merges the batch.
var kinds = []string{"itself", "server"}

// settings are the flags.
type settings struct {
	python         string
	seconds        float64 // per row
	sizes, batches measure.Numbers
}

func main() {
	s := settings{sizes: measure.Numbers{16, 4 << 10, 64 << 10, 1 << 20}, batches: measure.Numbers{2, 8, 64}}
	flag.StringVar(&s.python, "python", "", "interpreter with numpy; default the newest of .venvs, else python3 on PATH")
	flag.Float64Var(&s.seconds, "seconds", 1, "how long each row is measured")
	flag.Var(&s.sizes, "sizes", "bytes of each request's tensor, multiples of 4")
	flag.Var(&s.batches, "batches", "requests in each batch")
	flag.Parse()
	if s.python == "" {
		s.python = measure.NewestPython()
	}
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "stacked:", err)
		os.Exit(1)
	}
}

func (s *settings) run() error {
	fmt.Printf("%d processors, %s\n", runtime.NumCPU(), runtime.Version())
	fmt.Printf("\nBatches of requests to a model that adds 1 to its input, from the first request to the last answer, in µs\n\n")
	var table measure.Table
	table.Row("requests, each", "itself p50", "CPU", "stacked p50", "CPU", "p50 ratio", "CPU ratio")
	for _, n := range s.batches {
		if err := s.measureBatches(n, &table); err != nil {
			return err
		}
	}
	return table.Write(os.Stdout)
}

// measureBatches measures batches of n requests of all sizes.
func (s *settings) measureBatches(n int, table *measure.Table) (err error) {
	r, err := s.start(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, size := range s.sizes {
		if n*size > 256<<20 {
			continue
		}
		var all [2]measure.Times
		// The two take turns, so that a slow phase of the machine affects both.
		for range 4 {
			for i, kind := range kinds {
				times, err := r.measure(time.Duration(s.seconds*float64(time.Second)/4), kind, n, size)
				if err != nil {
					return err
				}
				all[i].Add(times)
			}
		}
		itself, server := &all[0], &all[1]
		table.Row(fmt.Sprintf("%d, %s", n, measure.Size(size)),
			itself.Quantile(0.5), itself.CPUEach(), server.Quantile(0.5), server.CPUEach(),
			float64(server.Quantile(0.5))/float64(itself.Quantile(0.5)), float64(server.CPUEach())/float64(itself.CPUEach()))
	}
	return nil
}

// comparison is a registry with both models.
type comparison struct {
	directory  string // its repository
	pool       *shm.Pool
	supervisor *process.Supervisor
	backend    *python.Backend
	registry   *models.Registry
	pids       []int
}

// start serves both models with batches of exactly n requests.
func (s *settings) start(n int) (r *comparison, err error) {
	r = &comparison{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.directory, err = os.MkdirTemp("", "stacked"); err != nil {
		return r, err
	}
	for _, kind := range kinds {
		mode := ""
		if kind == "server" {
			mode = `parameters { key: "BATCH_MODE" value { string_value: "stacked" } }`
		}
		config := fmt.Sprintf(`backend: "python"
max_batch_size: %[1]d
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
dynamic_batching { preferred_batch_size: [ %[1]d ] max_queue_delay_microseconds: 10000000 }
instance_group [ { count: 1 kind: KIND_CPU } ]
%[2]s
`, n, mode)
		if err := os.CopyFS(filepath.Join(r.directory, kind), os.DirFS(filepath.Join("bench/stacked", kind))); err != nil {
			return r, err
		}
		if err := os.WriteFile(filepath.Join(r.directory, kind, "config.pbtxt"), []byte(config), 0o600); err != nil {
			return r, err
		}
	}
	region, err := shm.NewRegionUpTo(shm.Memfd{}, poolBytes, 256<<20, shm.ReadWrite)
	if err != nil {
		return r, fmt.Errorf("make memory for requests: %w", err)
	}
	if r.pool, err = shm.NewPool(region, shm.PoolConfig{Growth: 4 << 20}); err != nil {
		return r, fmt.Errorf("make memory for requests: %w", err)
	}
	return r, r.serve(s.python)
}

func (r *comparison) serve(interpreter string) error {
	values := map[string]string{}
	if interpreter != "" {
		values["python-executable"] = interpreter
	}
	config, err := python.ParseConfig(values)
	if err != nil {
		return err
	}
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	counters := metrics.New(metrics.Config{})
	r.supervisor, err = process.New(process.Environment{
		Requests: r.pool, Log: log,
		LogLevels: func() process.LogLevels { return process.LogLevels{Warning: true, Error: true} },
		Metrics:   counters,
	})
	if err != nil {
		return err
	}
	r.backend, err = python.New(python.Environment{Supervisor: r.supervisor, Config: config, Files: []fs.FS{stub.Files, pyutils.Files}, Log: log})
	if err != nil {
		return err
	}
	opened, err := repository.Open([]string{r.directory}, repository.Options{})
	if err != nil {
		return err
	}
	defer opened.Close()
	r.registry = models.NewRegistry(models.RegistryConfig{
		Repository: opened,
		Settings: version.Settings{
			Backends: map[string]backend.Backend{"python": r.backend}, Allocate: r.allocate, Metrics: counters, Log: log,
		},
	})
	if err := r.registry.Start(context.Background()); err != nil {
		return err
	}
	r.pids, err = measure.Tree(os.Getpid())
	return err
}

func (r *comparison) allocate(n int) ([]byte, infer.Memory, error) {
	block, err := r.pool.Alloc(n)
	if err != nil {
		return nil, nil, err
	}
	return block.Bytes(), block, nil
}

func (r *comparison) close() (err error) {
	if r.registry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = r.registry.Shutdown(ctx)
	}
	if r.backend != nil {
		r.backend.Close()
	}
	if r.supervisor != nil {
		r.supervisor.Close()
	}
	if r.pool != nil {
		r.pool.Close()
	}
	return errors.Join(err, os.RemoveAll(r.directory))
}

// measure sends batch after batch, each of n concurrent requests of size bytes.
func (r *comparison) measure(span time.Duration, model string, n, size int) (measure.Times, error) {
	answers := make(chan error, n)
	send := func(response *infer.Response) {
		switch {
		case response.Err != nil:
			answers <- response.Err
		case len(response.Outputs) != 1 || len(response.Outputs[0].Data) != size:
			answers <- fmt.Errorf("%s: got %d outputs, want one of %d bytes", model, len(response.Outputs), size)
		default:
			answers <- nil
		}
		response.Release()
	}
	once := func() (err error) {
		var blocks []infer.Memory
		defer func() {
			for _, b := range blocks {
				b.Release()
			}
		}()
		for range n {
			in := infer.Tensor{Name: "INPUT", DataType: infer.FP32, Shape: []int64{1, int64(size / 4)}}
			if size <= inline {
				in.Data = make([]byte, size)
			} else {
				if in.Data, in.Memory, err = r.allocate(size); err != nil {
					return err
				}
				blocks = append(blocks, in.Memory)
			}
			request := &infer.Request{Model: model, Version: infer.LatestVersion, Inputs: []infer.Tensor{in}}
			go func() {
				if err := r.registry.Infer(context.Background(), request, send); err != nil {
					answers <- err
				}
			}()
		}
		for range n {
			err = errors.Join(err, <-answers)
		}
		return err
	}
	for range 3 { // touches the memory, and lets the model see its first batch
		if err := once(); err != nil {
			return measure.Times{}, err
		}
	}
	return measure.Rounds(span, r.pids, once)
}
