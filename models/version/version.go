package version

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/signature"
	"github.com/nereid-serving/nereid/models/statistics"
	"github.com/nereid-serving/nereid/models/warmup"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/sequence"
	"github.com/nereid-serving/nereid/scheduler/stacked"
)

// Version is one version of a model from its load to its close. It is immutable: an exchange of
// instances makes a copy with another config.
type Version struct {
	loader     *Loader
	info       *Info
	spec       *signature.Model
	scheduler  scheduler.Scheduler
	barrier    *warmup.Barrier
	between    []instanceKeeper // layers between the barrier and the instances; bound: two
	share      *ratelimit.Share // of the rate limiter's resources; nil without one
	passive    bool             // it has only passive instances
	model      backend.Model
	can        backend.ModelCapabilities // the model's
	statistics *statistics.Version
	states     []sequence.State // of sequences
	cache      *cache.Version   // nil if responses are not cached
	stacking   *stacked.Plan    // nil if batches reach the model as lists of requests
	mapper     backend.Mapper   // nil if inputs in foreign memory are always copied
	parts      repository.Set   // models that an ensemble calls; nil for other models; bound: the config
	copy       *copies.Copy     // the model's files; nil if they lie in the repository
	charge     *budget.Shared   // of a config that came with a request; nil otherwise
	archive    *copies.Copy     // its execution environment; nil if that came from no store
	imports    *repository.Imports
	holds      *holds
	kept       *budget.Charge // for labels and initial states; nil: they are not charged
	odd        *oddOutputs    // nil for an ensemble, whose parts are checked instead
	log        zerolog.Logger
}

// Imports returns the files outside the model's directory that its processes have imported; nil:
// not tracked.
func (v *Version) Imports() *repository.Imports { return v.imports }

// execute validates a request, answers it from the cache or executes it, and completes its
// responses. Below it no input lies in foreign memory, except those that the instances use in
// place, and no output is wanted there, except in places that the instances may write.
func (v *Version) execute(ctx context.Context, req *infer.Request, send infer.Sender, by func(context.Context, *infer.Request, infer.Sender) error) error {
	start := backend.Now()
	out := v.timed(start, send)
	answer := func(r *infer.Response) {
		v.complete(r, req)
		out(r)
	}
	if v.passive {
		return v.errPassive()
	}
	if err := v.spec.Validate(ctx, req); err != nil {
		var late *signature.BackendRefusal
		if !errors.As(err, &late) {
			return err
		}
		v.statistics.Failed(scheduler.BackendFailure, start)
		answer(infer.ErrorResponse(late.Err))
		return nil
	}
	if err := v.localize(ctx, req); err != nil {
		return err
	}
	v.keepPlaces(req)
	if v.cache != nil {
		return v.runCached(ctx, req, out, by)
	}
	return by(ctx, req, answer)
}

// stamp sets the version and request that a response belongs to.
func (v *Version) stamp(r *infer.Response, req *infer.Request) {
	r.Model, r.Version, r.ID = v.info.Name, v.info.Version, req.ID
}

// complete turns a scheduler's response into one for clients.
func (v *Version) complete(r *infer.Response, req *infer.Request) {
	v.stamp(r, req)
	v.shape(r)
}

// shape gives the outputs of a response their clients' shapes. The model may return any shape, so a
// panic here is an error of this response. With StrictOutputs, so are outputs that contradict the
// configuration.
func (v *Version) shape(r *infer.Response) {
	err := panics.Run(v.log, panics.Request, func() error {
		if v.odd != nil {
			if at := v.spec.OddOutput(r, 0); at >= 0 {
				if err := v.odd.tell(v, r, at); err != nil {
					return err
				}
			}
		}
		v.spec.ShapeOutputs(r)
		return nil
	})
	if err == nil {
		return
	}
	for i := range r.Outputs {
		r.Outputs[i].Release()
	}
	r.Outputs, r.Parameters, r.Err = nil, nil, infer.AsError(err)
}

// oddOutputs records which outputs have been reported, for all copies of a version.
type oddOutputs struct {
	mu   sync.Mutex
	told map[string]bool // bound: maxOdd
}

// maxOdd bounds the reported names, since a model may invent them.
const maxOdd = 32

// tell logs the outputs of a response, from index at on, that contradict the configuration, once
// for each name. With StrictOutputs it returns the response's error.
func (o *oddOutputs) tell(v *Version, r *infer.Response, at int) (refused error) {
	strict := v.loader.settings.StrictOutputs
	for ; at >= 0; at = v.spec.OddOutput(r, at+1) {
		out := &r.Outputs[at]
		if strict && refused == nil {
			refused = infer.Errorf(infer.Internal, "%s", v.spec.Oddity(out))
		}
		name := infer.Cut(out.Name, budget.MaxName)
		o.mu.Lock()
		first := !o.told[name] && len(o.told) < maxOdd
		if first {
			o.told[name] = true
		}
		o.mu.Unlock()
		switch {
		case !first:
		case strict:
			v.log.Error().Msg(v.spec.Oddity(out))
		default:
			v.log.Warn().Msg(v.spec.Oddity(out) + ": clients receive it unchanged")
		}
	}
	return refused
}

// timed returns a sender that measures the time of the first response, if that is wanted.
func (v *Version) timed(start int64, send infer.Sender) infer.Sender {
	if !v.statistics.Metrics.TimesFirst() {
		return send
	}
	first := true
	return func(r *infer.Response) {
		if first {
			first = false
			v.statistics.Metrics.FirstResponse(backend.Now() - start)
		}
		send(r)
	}
}

// Info describes the version.
func (v *Version) Info() *Info { return v.info }

// Ready returns nil if the version's instances are ready, or why they are not.
func (v *Version) Ready(ctx context.Context) error {
	for _, in := range v.model.Instances() {
		if err := in.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// AsksReady reports whether the model's own code decides if an instance is ready.
func (v *Version) AsksReady() bool {
	asks := v.can.AsksReady
	return asks != nil && asks()
}

// InFlight counts the accepted requests without a final response.
func (v *Version) InFlight() int { return v.scheduler.InFlight() }

// Drain waits until no request is in flight, as long as ctx allows.
func (v *Version) Drain(ctx context.Context) error { return v.scheduler.Drain(ctx) }

// Statistics returns the statistics of the version and the memory kept for it.
func (v *Version) Statistics() *kserve.ModelStatistics {
	m := v.statistics.Proto()
	if report := v.can.ReportMemory; report != nil {
		m.MemoryUsage = []*kserve.MemoryUsage{{Type: "CPU", Id: 0, ByteSize: uint64(report())}}
	}
	return m
}

// Composing returns the models that the steps of an ensemble call, nil for other models. Callers do
// not change it.
func (v *Version) Composing() repository.Set { return v.parts }

// Instances lists the names of the instances.
func (v *Version) Instances() []string { return names(v.model.Instances()) }

func names(instances []backend.Instance) []string {
	var list []string // bound: the instances
	for _, in := range instances {
		list = append(list, in.Name())
	}
	return list
}

// Barrier returns the warm-up barrier, for tests.
func (v *Version) Barrier() *warmup.Barrier { return v.barrier }

// Close ends the version. It finishes the requests first, as long as the model's timeout and the
// registry's lifetime allow, and then ends the instances. It is called once, when no request can
// find the version any more.
func (v *Version) Close() error {
	ctx, cancel := v.loader.unloading(v.model)
	defer cancel()
	held := v.holds.end(ctx)
	stopped := v.scheduler.Stop(ctx)
	v.barrier.Cancel()
	closed := v.model.Close(ctx)
	v.barrier.Close()
	v.share.Release()
	v.copy.Drop()
	v.charge.Drop()
	v.archive.Drop()
	v.kept.Settle()
	v.cache.Close()
	v.statistics.Metrics.Close()
	// If stubs were killed, the requests in flight have ended with them.
	return cmp.Or(closed, stopped, held)
}
