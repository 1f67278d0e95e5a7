package models

import (
	"cmp"
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/signature"
	"github.com/nereid-serving/nereid/models/statistics"
	"github.com/nereid-serving/nereid/models/warmup"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/sequence"
	"github.com/nereid-serving/nereid/scheduler/stacked"
)

// State is where a version of a model is in its life, as the repository index
// shows it.
type State string

// The states of a version.
const (
	Unknown     State = "UNKNOWN"
	Loading     State = "LOADING"
	Ready       State = "READY"
	Unloading   State = "UNLOADING"
	Unavailable State = "UNAVAILABLE"
)

// reasonUnloaded is the reason of a version that was unloaded on purpose.
const reasonUnloaded = "unloaded"

// version is one version of a model that is known to the registry. What is
// below state is set while it is loaded.
type version struct {
	number int64
	state  State
	reason string // of UNAVAILABLE
	*loaded
}

// loaded is what serves a version. It does not change; a version that gets other
// instances gets a copy that shows another config.
type loaded struct {
	registry   *Registry
	info       *Info
	spec       *signature.Model
	scheduler  scheduler.Scheduler
	barrier    *warmup.Barrier
	between    []forgetful      // what stands between the barrier and the instances
	share      *ratelimit.Share // of the rate limiter's resources; nil without one
	passive    bool             // it has only passive instances
	model      backend.Model
	statistics *statistics.Version
	states     []sequence.State   // of sequences
	cache      *cache.Version     // nil if responses are not cached
	stacking   *stacked.Plan      // nil if batches reach the model as lists of requests
	parts      repository.Set     // what an ensemble calls; nil for other models
	upload     *repository.Upload // what it is a user of, nil if it lies in the repository
	holds      *holds
	log        zerolog.Logger
}

// run validates a request, has it answered out of the cache or executed, and
// completes its responses. Below it no input lies in foreign memory.
func (l *loaded) run(ctx context.Context, req *infer.Request, send infer.Sender, by func(context.Context, *infer.Request, infer.Sender) error) error {
	start := backend.Now()
	out := l.timed(start, send)
	answer := func(r *infer.Response) {
		l.complete(r, req)
		out(r)
	}
	if l.passive {
		return l.errPassive()
	}
	if err := l.spec.Validate(req); err != nil {
		var late *signature.BackendRefusal
		if !errors.As(err, &late) {
			return err
		}
		l.statistics.Failed(scheduler.BackendFailure, start)
		answer(infer.ErrorResponse(late.Err))
		return nil
	}
	if err := req.Localize(); err != nil {
		return err
	}
	if l.cache != nil {
		return l.runCached(ctx, req, out, by)
	}
	return by(ctx, req, answer)
}

// stamp says which version a response is of, and of which request.
func (l *loaded) stamp(r *infer.Response, req *infer.Request) {
	r.Model, r.Version, r.ID = l.info.Name, l.info.Version, req.ID
}

// complete makes a scheduler's response one for clients.
func (l *loaded) complete(r *infer.Response, req *infer.Request) {
	l.stamp(r, req)
	l.shape(r)
}

// shape gives the outputs of a response their clients' shapes. The model's may be
// any: a panic over them is this response's error.
func (l *loaded) shape(r *infer.Response) {
	err := boundary.Run(l.log, boundary.Request, func() error { l.spec.ShapeOutputs(r); return nil })
	if err == nil {
		return
	}
	for i := range r.Outputs {
		r.Outputs[i].Release()
	}
	r.Outputs, r.Parameters, r.Err = nil, nil, infer.AsError(err)
}

// timed makes a sender that counts when the first response comes, if that is
// wanted.
func (l *loaded) timed(start int64, send infer.Sender) infer.Sender {
	if !l.statistics.Metrics.TimesFirst() {
		return send
	}
	first := true
	return func(r *infer.Response) {
		if first {
			first = false
			l.statistics.Metrics.FirstResponse(backend.Now() - start)
		}
		send(r)
	}
}

// ready tells why the version's instances are not ready, nil if they are.
func (l *loaded) ready(ctx context.Context) error {
	for _, in := range l.model.Instances() {
		if err := in.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends the version: requests inside are finished first, as long as ctx
// allows.
func (l *loaded) close(ctx context.Context) error {
	held := l.holds.end(ctx)
	stopped := l.scheduler.Stop(ctx)
	l.barrier.Cancel()
	closed := l.model.Close(ctx)
	l.barrier.Close()
	l.share.Release()
	l.upload.Drop()
	l.cache.Close()
	l.statistics.Metrics.Close()
	// What was still inside has ended with the stubs, if those were killed.
	return cmp.Or(closed, stopped, held)
}
