package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/stub"
	"github.com/rs/zerolog"
)

// subject is a model whose round trips are measured. It returns its input.
type subject struct {
	directory string
	dataType  kserve.DataType
}

// floats is the model of most rows.
var floats = subject{"examples/models/identity_fp32", kserve.DataType_TYPE_FP32}

// poolBytes is the sparse size of the memory for requests.
const poolBytes = 4 << 30

// inline is the size up to which tensors travel inside frames instead of in blocks.
const inline = 4096

// identity is one instance of a model with a running stub.
type identity struct {
	subject
	pool       *shm.Pool
	supervisor *process.Supervisor
	backend    *python.Backend // nil for a backend in Go
	native     *native.Backend // nil unless it is a plugin
	model      backend.Model
	instance   backend.Instance
	about      string // describes the interpreter
}

// uncounted ignores the events of a backend, as its Metrics, and of a model without a scheduler, as
// its Events.
type uncounted struct{}

func (uncounted) StubStarted(string) {}
func (uncounted) Custom(model string) *metrics.Holder {
	return metrics.New(metrics.Config{}).Custom(model)
}
func (uncounted) StubLost(string, string)     {}
func (uncounted) StubRestarted(string)        {}
func (uncounted) ProtocolError(string)        {}
func (uncounted) Available(backend.Instance)  {}
func (uncounted) Lost(backend.Instance, bool) {}

// hosting creates the host of the processes.
func hosting(about subject) (*identity, error) {
	region, err := shm.NewRegionUpTo(shm.Memfd{}, poolBytes, 256<<20, shm.ReadWrite)
	if err != nil {
		return nil, fmt.Errorf("make memory for requests: %w", err)
	}
	i := &identity{subject: about}
	if i.pool, err = shm.NewPool(region, shm.PoolConfig{}); err != nil {
		return nil, fmt.Errorf("make memory for requests: %w", err)
	}
	i.supervisor, err = process.New(process.Environment{
		Requests: i.pool, Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
		LogLevels: func() process.LogLevels { return process.LogLevels{Warning: true, Error: true} },
		Metrics:   uncounted{},
	})
	return i, err
}

// start starts the instance. The caller closes it.
func start(interpreter string, about subject) (*identity, error) {
	i, err := hosting(about)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	if interpreter != "" {
		settings["python-executable"] = interpreter
	}
	config, err := python.ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	i.backend, err = python.New(python.Environment{Supervisor: i.supervisor, Config: config, Files: []fs.FS{stub.Files, pyutils.Files}, Log: log})
	if err != nil {
		return nil, err
	}
	version, numpy, path, err := i.backend.Interpreter()
	if err != nil {
		return nil, errors.Join(err, i.close())
	}
	i.about = fmt.Sprintf("Python %s with numpy %s (%s)", version, numpy, path)
	if err := i.open(); err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

func (i *identity) open() error {
	config := i.config("python")
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	directory, err := filepath.Abs(i.directory)
	if err != nil {
		return err
	}
	opened, err := i.backend.Open(backend.Env{Name: config.GetName(), Version: 1, Directory: directory, Config: config})
	if err != nil {
		return err
	}
	if err := opened.Start(context.Background(), config, text, uncounted{}); err != nil {
		return fmt.Errorf("start %s: %w", i.directory, err)
	}
	i.model, i.instance = opened, opened.Instances()[0]
	return nil
}

func (i *identity) close() error {
	var err error
	if i.model != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = i.model.Close(ctx)
	}
	if i.backend != nil {
		i.backend.Close()
	}
	i.supervisor.Close()
	i.pool.Close()
	return err
}

// batch is a number of requests of the same size, which are executed repeatedly.
type batch struct {
	identity *identity
	batch    backend.Batch
	requests []infer.Request
	bytes    int
	content  []byte // of each input; nil: uninitialized memory
	awaiter  backend.Awaiter
	done     chan struct{} // receives one value for each completed execution

	left   int // missing answers; used by the answering goroutine
	report backend.Report
	err    error
	check  bool // compare the answers with the requests
}

func (i *identity) batch(requests, n int) *batch {
	b := &batch{identity: i, bytes: n, requests: make([]infer.Request, requests), done: make(chan struct{}, 1)}
	b.awaiter = i.instance.Capabilities().Awaiter
	b.batch.Done = b.executed
	for at := range b.requests {
		b.requests[at].Inputs = []infer.Tensor{{Name: "INPUT0", DataType: infer.FP32, Shape: []int64{int64(n / 4)}}}
		b.batch.Tasks = append(b.batch.Tasks, &backend.Task{
			Context: context.Background(), Request: &b.requests[at],
			Send: func(response *infer.Response) { b.answered(at, response) },
		})
	}
	return b
}

func (b *batch) executed(_ *backend.Batch, report backend.Report) {
	b.report = report
	b.settle()
}

func (b *batch) answered(at int, response *infer.Response) {
	switch {
	case response.Err != nil:
		b.err = response.Err
	case len(response.Outputs) != 1 || len(response.Outputs[0].Data) != b.bytes:
		b.err = fmt.Errorf("request %d: got %d outputs, want one of %d bytes", at, len(response.Outputs), b.bytes)
	case b.check && !bytes.Equal(response.Outputs[0].Data, b.requests[at].Inputs[0].Data):
		b.err = fmt.Errorf("request %d: got other bytes than were sent", at)
	}
	response.Release()
	b.settle()
}

// settle counts the answers and the report of the batch.
func (b *batch) settle() {
	if b.left--; b.left == 0 {
		b.done <- struct{}{}
	}
}

// once executes the batch and waits like the scheduler. It allocates and releases memory for large
// tensors each time, like the front ends.
func (b *batch) once() error {
	for at := range b.requests {
		input := &b.requests[at].Inputs[0]
		if b.bytes <= inline {
			if input.Data == nil {
				input.Data = make([]byte, b.bytes)
			}
			continue
		}
		block, err := b.identity.pool.Alloc(b.bytes)
		if err != nil {
			return err
		}
		input.Data, input.Memory = block.Bytes(), block
	}
	for at := range b.requests {
		data := b.requests[at].Inputs[0].Data
		if b.content != nil {
			copy(data, b.content)
		} else if b.check {
			for i := range data {
				data[i] = byte(i + at)
			}
		}
	}
	b.left = len(b.requests) + 1
	b.identity.instance.Execute(&b.batch)
	if b.awaiter != nil {
		b.awaiter.Await(b.done)
	}
	<-b.done
	for at := range b.requests {
		b.requests[at].Inputs[0].Release()
	}
	switch {
	case b.report.Refused:
		return errors.New("the stub was lost")
	case b.report.Err != nil:
		return b.report.Err
	}
	return b.err
}

// measureBatch measures batches of the given number of requests with tensors of n bytes.
func (i *identity) measureBatch(span time.Duration, requests, n int) (measure.Times, error) {
	tree, err := measure.Tree(os.Getpid())
	if err != nil {
		return measure.Times{}, err
	}
	return i.batch(requests, n).measure(span, tree)
}

// measure checks one answer and then measures.
func (b *batch) measure(span time.Duration, pids []int) (measure.Times, error) {
	b.check = true
	if err := b.once(); err != nil {
		return measure.Times{}, err
	}
	b.check = false
	return measure.WarmRounds(span, pids, b.once)
}
