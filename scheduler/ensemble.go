package scheduler

import (
	"context"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/rs/zerolog"
)

// EnsembleConfig sets up an Ensemble: a graph of models that hand tensors to
// each other. It has been checked: each tensor is made once, and from the inputs.
type EnsembleConfig struct {
	Model string
	// Batches says that the ensemble's own tensors have a batch dimension.
	Batches bool
	// Decoupled says that one of the steps may answer any number of times: so does
	// the ensemble then.
	Decoupled bool
	Inputs    []string
	Outputs   []EnsembleOutput
	Steps     []EnsembleStep
	// MaxInflight is how many requests of each step may be under way at once, over
	// all requests of the ensemble; 0 is no limit.
	MaxInflight int
	Composer    Composer
	Observer    Observer
	Log         zerolog.Logger
}

// EnsembleOutput is an output of an ensemble, with the dims that its config
// announces, or has the models make if it reshapes them.
type EnsembleOutput struct {
	Tensor string
	Dims   []int64
}

// EnsembleStep is one call of a model.
type EnsembleStep struct {
	Model     string
	Version   int64 // infer.LatestVersion: the latest that is ready when a request comes
	Decoupled bool
	Inputs    []EnsembleLink // in the order in which the model gets them
	Outputs   []EnsembleLink // that the model is asked for
}

// EnsembleLink ties an input or output of a step's model to a tensor of the
// ensemble.
type EnsembleLink struct{ Name, Tensor string }

// Composer finds the models that the steps of an ensemble call.
type Composer interface {
	// Hold returns the version that a request would reach. It is not unloaded
	// before it is released.
	Hold(model string, version int64) (Composed, error)
}

// Composed is a version of a model that a request of an ensemble holds.
type Composed interface {
	// Submit is infer.Submitter's. The Awaiter is the instance that the request has
	// been handed to, nil if that is not known or it waits.
	Submit(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error)
	// Batches reports whether the model's tensors have a batch dimension.
	Batches() bool
	// Dims is what the config says of an input.
	Dims(input string) []int64
	Release()
}

// Ensemble executes the requests of an ensemble: it has no instances of its own,
// and calls other models. It has no goroutine either: whoever brings the response
// of a step makes the requests of those that follow.
type Ensemble struct {
	config   EnsembleConfig
	tensors  map[string]int // their numbers
	steps    []ensembleStep
	inputs   []int // tensors
	outputs  map[string]ensembleOutput
	whole    *ensemblePlan
	widest   int  // inputs of all steps
	loose    bool // see window
	limiters []*limiter

	mu     sync.Mutex
	census Census
}

var _ Scheduler = (*Ensemble)(nil)

// NewEnsemble makes the scheduler of an ensemble.
func NewEnsemble(config EnsembleConfig) *Ensemble {
	e := &Ensemble{config: config, tensors: make(map[string]int), outputs: make(map[string]ensembleOutput), census: NewCensus()}
	e.compile()
	for range config.Steps {
		e.limiters = append(e.limiters, &limiter{limit: config.MaxInflight})
	}
	return e
}

// Infer implements infer.Handler.
func (e *Ensemble) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	f, err := e.accept(ctx, req, send)
	if err != nil {
		return err
	}
	f.done = make(chan struct{}, 1)
	f.moved = make(chan struct{}, 1)
	f.begin()
	if req.Entered != nil {
		req.Entered()
	}
	f.wait()
	return nil
}

// Submit implements infer.Submitter.
func (e *Ensemble) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	f, err := e.accept(ctx, req, send)
	if err != nil {
		return err
	}
	f.begin()
	return nil
}

// accept takes a request in.
func (e *Ensemble) accept(ctx context.Context, req *infer.Request, send infer.Sender) (*flow, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.census.StoppedLocked() {
		return nil, infer.Errorf(infer.Unavailable,
			"%sServer is stopping, scheduler for model has stopped accepting new inference requests", req.LogPrefix())
	}
	e.census.EnterLocked()
	return newFlow(e, ctx, req, send), nil
}

// end takes a request out whose last response has been handed up.
func (e *Ensemble) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.census.LeaveLocked()
}

// Up implements backend.Events; an ensemble has no instances.
func (e *Ensemble) Up(backend.Instance) {}

// Down implements backend.Events.
func (e *Ensemble) Down(backend.Instance, bool) {}

// Retire implements Scheduler.
func (e *Ensemble) Retire(_ backend.Instance, drained func()) { drained() }

// Stop implements Scheduler.
func (e *Ensemble) Stop(ctx context.Context) error {
	e.mu.Lock()
	e.census.StopLocked()
	e.mu.Unlock()
	return Wait(ctx, e.census.Drained())
}

// Drain implements Scheduler.
func (e *Ensemble) Drain(ctx context.Context) error {
	e.mu.Lock()
	quiet := e.census.QuietLocked()
	e.mu.Unlock()
	return Wait(ctx, quiet)
}

// InFlight implements Scheduler.
func (e *Ensemble) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.census.InsideLocked()
}
