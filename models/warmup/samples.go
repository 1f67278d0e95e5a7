package warmup

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/signature"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
)

// Samples runs the samples of a version's model_warmup on instances, past the scheduler. The
// executions count in the version's statistics.
type Samples struct {
	Configured []*kserve.ModelWarmup
	Signature  *signature.Model
	Model      string
	Version    int64
	Open       func() (*repository.Folder, error) // the model's directory
	Observer   scheduler.Observer
	// Memory is the account of the samples' data and requests; nil: they are not charged.
	Memory *budget.Account
	// Iterative executes requests again that the model releases for rescheduling.
	Iterative bool
	Log       zerolog.Logger

	mu sync.Mutex
	// longest is the longest duration of a first warm-up.
	longest time.Duration
	held    map[*kserve.ModelWarmup]*heldSample
}

// againAtLeast bounds, beside the duration of the first warm-up, the warm-up of an instance that
// was lost: other requests may wait for the instance.
const againAtLeast = 30 * time.Second

// repeatAtMost bounds the repetitions of samples on an instance: a count of a million would delay a
// load for hours, and so would ten thousand samples. Each of the first onceAtLeast samples is
// executed once, however long that takes: the model may compile for each of them.
const (
	repeatAtMost = 5 * time.Minute
	onceAtLeast  = 64
)

// Run warms an instance up. The error is for clients.
func (w *Samples) Run(ctx context.Context, in backend.Instance, first bool) error {
	begin := time.Now()
	until := begin.Add(repeatAtMost)
	if !first {
		w.mu.Lock()
		limit := againAtLeast + 2*w.longest
		w.mu.Unlock()
		var cancel context.CancelFunc
		ctx, cancel = panics.WithLimit(ctx, limit, context.DeadlineExceeded)
		defer cancel()
	}
	directory, err := w.Open()
	if err != nil {
		return err
	}
	defer directory.Close()
	for i, sample := range w.Configured {
		if sample.GetBatchSize() == 0 {
			w.Log.Debug().Msgf("skipping batch 0 warmup sample '%s'", sample.GetName())
			continue
		}
		if i >= onceAtLeast && time.Now().After(until) {
			w.Log.Warn().Msgf("model '%s' instance %s executed %d of %d warmup samples within the limit of %s; use fewer samples in model_warmup",
				w.Model, in.Name(), i, len(w.Configured), repeatAtMost)
			break
		}
		// An instance holds one sample's data at a time.
		held := w.hold(directory, sample)
		err := held.err
		if err == nil {
			err = w.repeat(ctx, in, held.batch, until)
		}
		w.drop(sample, held)
		if err != nil {
			return err
		}
	}
	if first {
		w.mu.Lock()
		w.longest = max(w.longest, time.Since(begin))
		w.mu.Unlock()
	}
	return nil
}

// Check makes the data of each sample and runs none. Faulty data gives the same error as in Run.
func (w *Samples) Check() error {
	directory, err := w.Open()
	if err != nil {
		return err
	}
	defer directory.Close()
	for _, sample := range w.Configured {
		c := w.newCharge()
		_, err := w.batch(c, directory, sample)
		c.Settle()
		if err != nil && sample.GetBatchSize() > 0 {
			return sampleFailed(sample, infer.AsError(err).Detailed().Message)
		}
	}
	return nil
}

// newCharge returns a charge for a sample.
func (w *Samples) newCharge() *budget.Charge {
	if w.Memory == nil {
		return nil
	}
	return &budget.Charge{Account: w.Memory}
}

// repeat executes a sample as often as its count requires. It starts no repetition after until.
func (w *Samples) repeat(ctx context.Context, in backend.Instance, b *sampleBatch, until time.Time) error {
	c := w.newCharge()
	if err := c.Take(budget.Bodies, b.requestsBytes()); err != nil {
		return err
	}
	defer c.Settle()
	count := max(b.sample.GetCount(), 1)
	for iteration := range count {
		if iteration > 0 && time.Now().After(until) {
			w.Log.Warn().Msgf("model '%s' instance %s executed warmup sample '%s' %d of %d times within the limit of %s; use a smaller 'count' in model_warmup",
				w.Model, in.Name(), b.sample.GetName(), iteration, count, repeatAtMost)
			return nil
		}
		w.Log.Debug().Msgf("model '%s' instance %s is running warmup sample '%s' for iteration %d", w.Model, in.Name(), b.sample.GetName(), iteration+1)
		if errors := w.execute(ctx, in, b); len(errors) > 0 {
			return sampleFailed(b.sample, errors...)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// sampleFailed is the error for a sample, with the errors of its requests.
func sampleFailed(sample *kserve.ModelWarmup, errors ...string) error {
	return refuse("failed to run warmup sample '%s': %s; ", sample.GetName(), strings.Join(errors, "; ")) // bound: mostErrors
}

// trial is one execution of a sample.
type trial struct {
	samples  *Samples
	instance backend.Instance
	started  int64
	ended    chan struct{} // closed when nothing is open

	mu     sync.Mutex
	open   int // requests without a final response, and batches that are not done
	errors []string
	room   int // bytes that errors may still have
}

// mostErrors bounds the texts of the errors of one execution, in bytes.
const mostErrors = 64 << 10

// execute runs one iteration of a sample and returns the errors of its requests.
func (w *Samples) execute(ctx context.Context, in backend.Instance, b *sampleBatch) []string {
	t := &trial{samples: w, instance: in, started: backend.Now(), ended: make(chan struct{}), open: int(b.sample.GetBatchSize()), room: mostErrors}
	tasks := make([]*backend.Task, t.open) // bound: charged by repeat
	for i := range tasks {
		request := b.request()
		request.Version = w.Version
		tasks[i] = &backend.Task{Context: ctx, Request: request, Send: t.answered}
	}
	t.execute(tasks)
	select {
	case <-t.ended:
	case <-ctx.Done():
		for _, task := range tasks {
			backend.Cancel(in, task)
		}
		<-t.ended
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.errors
}

func (t *trial) execute(tasks []*backend.Task) {
	t.mu.Lock()
	t.open++
	t.mu.Unlock()
	t.instance.Execute(&backend.Batch{Tasks: tasks, Trial: true, Done: t.done})
}

// answered receives a response.
func (t *trial) answered(r *infer.Response) {
	r.Release()
	if r.Err != nil {
		t.fail(r.Err.Message)
	}
	if r.Final {
		t.leave(1)
	}
}

func (t *trial) fail(text string) {
	t.mu.Lock()
	if len(text) <= t.room || len(t.errors) == 0 {
		t.errors = append(t.errors, text) // bound: mostErrors and one error
		t.room -= len(text) + len("; ")
	}
	t.mu.Unlock()
}

func (t *trial) leave(n int) {
	t.mu.Lock()
	t.open -= n
	ended := t.open == 0
	t.mu.Unlock()
	if ended {
		close(t.ended)
	}
}

// done receives the end of a batch.
func (t *trial) done(b *backend.Batch, report backend.Report) {
	if report.Refused {
		t.fail(backend.Unhealthy(t.instance.Name()).Message)
		t.leave(len(b.Tasks) + 1)
		return
	}
	execution := &scheduler.Execution{Report: report}
	for _, task := range b.Tasks {
		execution.Requests = append(execution.Requests, scheduler.Timing{BatchSize: task.Request.BatchSize, Start: t.started, Queued: t.started}) // bound: charged by repeat
	}
	t.samples.Observer.Executed(execution)
	if again := report.Rescheduled; len(again) > 0 {
		t.reschedule(again)
	}
	t.leave(1)
}

// reschedule executes requests again that the model has released for rescheduling.
func (t *trial) reschedule(tasks []*backend.Task) {
	for _, task := range tasks {
		task.Request.Flags = 0
	}
	switch ctx := tasks[0].Context; {
	case !t.samples.Iterative:
		t.refuse(tasks, infer.Errorf(infer.Internal,
			"Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag."))
	case ctx.Err() != nil:
		t.refuse(tasks, context.Cause(ctx))
	default:
		t.execute(tasks)
	}
}

func (t *trial) refuse(tasks []*backend.Task, err error) {
	for _, task := range tasks {
		task.Send(infer.ErrorResponse(err))
	}
}

func refuse(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
