package models

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// Shutdown ends the registry. It refuses new requests and changes, finishes the requests in flight
// and unloads all models. If ctx ends first, the rest is ended by force and the error is Internal
// "Exit timeout expired. Exiting immediately.". The limit of ctx, if any, is that of
// panics.WithLimit. Once a second the log reports the progress.
func (r *Registry) Shutdown(ctx context.Context) error {
	log := r.config.Log
	r.loader.Exit()
	r.StopChanges()
	r.stopPolls(version.ErrExiting)
	stop := context.AfterFunc(ctx, panics.Guard(log, panics.Models, func() {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			r.expire(errors.New("the exit timeout ran out"))
		} else {
			r.expire(errors.New("the server was told to end at once"))
		}
	}, nil))
	defer stop()
	defer r.expire(nil)

	left := func() int { return int(panics.Left(ctx).Round(time.Second) / time.Second) }
	log.Info().Msg("Waiting for in-flight requests to complete.")
	// Part of the time is reserved for idle models: they finalize even
	// if a request does not end.
	total := panics.Left(ctx)
	drain, endDrain := panics.WithLimit(r.lifetime, total-UnloadReserve(total), context.DeadlineExceeded)
	defer endDrain()
	var draining sync.WaitGroup
	draining.Go(panics.Guard(log, panics.Models, func() { r.drain(drain) }, nil))
	eachSecond(log, &draining, func() {
		counts := r.InFlight()
		log.Info().Msgf("Timeout %d: Found %d model versions that have in-flight inferences", left(), len(counts))
		for info, n := range counts {
			log.Info().Msgf("Model '%s' (version %d) has %d in-flight inferences", info.Name, info.Version, n)
		}
	})

	if drain.Err() == nil {
		log.Info().Msg("All models are stopped, unloading models")
	} else {
		log.Info().Msg("Requests are still in flight, unloading models")
	}
	r.waitForPolls(ctx)
	r.catalog.RetireAll()
	eachSecond(log, &r.ending, func() {
		log.Info().Msgf("Timeout %d: Found %d live models and 0 in-flight non-inference requests", left(), len(r.catalog.Loaded()))
	})
	r.uploads.Close()
	if ctx.Err() != nil {
		return infer.Errorf(infer.Internal, "Exit timeout expired. Exiting immediately.")
	}
	return nil
}

// StopChanges refuses loads and unloads from now on and cancels those in progress.
func (r *Registry) StopChanges() { r.stopChanges(version.ErrExiting) }

// changing bounds an operation. The caller calls stop at its end.
func (r *Registry) changing(ctx context.Context, op *operation) (_ context.Context, stop func() bool) {
	ctx = r.locks.Bound(ctx, op)
	return ctx, context.AfterFunc(r.changes, panics.Guard(r.config.Log, panics.Models, func() { op.GiveUp(version.ErrExiting) }, nil))
}

// waitForPolls waits until all polls and their changes have ended, or ctx has ended.
func (r *Registry) waitForPolls(ctx context.Context) {
	done := make(chan struct{})
	panics.Go(r.config.Log, panics.Models, func() {
		defer close(done)
		r.polls.Wait()
	}, nil)
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// drain waits until no version has requests in flight. Requests between models are served until
// then, so no version stops before all are idle.
func (r *Registry) drain(ctx context.Context) {
	for busy := true; busy && ctx.Err() == nil; {
		busy = false
		for _, v := range r.catalog.Loaded() {
			if v.InFlight() > 0 {
				busy = true
				_ = v.Drain(ctx)
			}
		}
	}
}

// UnloadReserve is the part of the exit timeout that is reserved for unloading, so that idle models
// finalize although others are stuck.
func UnloadReserve(total time.Duration) time.Duration { return min(total/4, 2*time.Second) }

// eachSecond calls report at once and then every second until the group is done, as Triton does.
func eachSecond(log zerolog.Logger, group interface{ Wait() }, report func()) {
	done := make(chan struct{})
	panics.Go(log, panics.Models, func() {
		defer close(done)
		group.Wait()
	}, nil)
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		report()
		select {
		case <-done:
			return
		case <-ticks.C:
		}
	}
}
