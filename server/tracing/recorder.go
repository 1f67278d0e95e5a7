package tracing

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/panics"
)

// maxQueued bounds the complete traces that wait for the recorder.
const maxQueued = 1 << 14

// sink stores traces. The recorder's goroutine calls its methods.
type sink interface {
	// keep takes a complete trace.
	keep(tree *trace.Tree, of *setting)
	// retire writes the collected traces of a setting that was replaced.
	retire(*setting)
	// close writes or sends the remaining traces, until ctx ends.
	close(ctx context.Context) error
}

// recorder passes complete traces to a sink, in its own goroutine: requests end in goroutines that
// must not wait.
type recorder struct {
	sink sink
	log  zerolog.Logger
	wake chan struct{} // holds one value if the queue has changed; the senders do not wait
	over chan struct{} // closed by the goroutine when it ends

	mu      sync.Mutex
	queue   []job
	dropped uint64 // since the last log line
	closed  bool
}

// job is a trace to be kept, or settings to be retired.
type job struct {
	tree    *trace.Tree
	of      *setting
	retired []*setting
	done    chan struct{} // closed when the job is done; nil if no caller waits
}

func newRecorder(s sink, log zerolog.Logger) *recorder {
	r := &recorder{sink: s, log: log, wake: make(chan struct{}, 1), over: make(chan struct{})}
	panics.Go(log, panics.Server, r.run, nil)
	return r
}

// put queues a complete trace. It does not wait.
func (r *recorder) put(tree *trace.Tree, of *setting) {
	r.mu.Lock()
	if r.closed || len(r.queue) >= maxQueued {
		r.dropped++
		r.mu.Unlock()
		tree.Release()
		return
	}
	r.queue = append(r.queue, job{tree: tree, of: of}) // bound: maxQueued
	r.mu.Unlock()
	r.ring()
}

// retire returns when the collected traces of the settings are written.
func (r *recorder) retire(settings []*setting) {
	done := make(chan struct{})
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.queue = append(r.queue, job{retired: settings, done: done}) // bound: callers, which wait
	r.mu.Unlock()
	r.ring()
	select {
	case <-done:
	case <-r.over:
	}
}

// close ends the goroutine and the sink.
func (r *recorder) close(ctx context.Context, settings []*setting) error {
	r.mu.Lock()
	if !r.closed {
		r.queue = append(r.queue, job{retired: settings}) // bound: once
		r.closed = true
	}
	r.mu.Unlock()
	r.ring()
	select {
	case <-r.over:
		return r.sink.close(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *recorder) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run is the goroutine.
func (r *recorder) run() {
	defer close(r.over)
	for range r.wake {
		r.mu.Lock()
		queue, dropped, closed := r.queue, r.dropped, r.closed
		r.queue, r.dropped = nil, 0
		r.mu.Unlock()
		if dropped > 0 {
			r.log.Warn().Uint64("traces", dropped).Msg("traces were dropped because they end faster than they are written")
		}
		for _, j := range queue {
			// A panic costs one trace.
			panics.Guard(r.log, panics.Server, func() { r.do(j) }, nil)()
		}
		if closed {
			return
		}
	}
}

func (r *recorder) do(j job) {
	if j.done != nil {
		defer close(j.done)
	}
	if j.tree != nil {
		defer j.tree.Release() // after a panic too
		r.sink.keep(j.tree, j.of)
		if n := j.tree.Omitted(); n > 0 {
			r.log.Warn().Int("tensors", n).Msg("a trace lacks tensors, because the server has no memory left for their text")
		}
		if n := j.tree.LeftOut(); n > 0 {
			r.log.Warn().Int("activities", n).Msg("a trace lacks activities of backends, executions or requests of models, because there are too many or the server has no memory left")
		}
	}
	for _, s := range j.retired {
		r.sink.retire(s)
	}
}
