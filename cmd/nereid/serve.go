package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// serve starts the server and runs it until a signal ends it. It returns the
// exit status.
func serve(o *Options, getenv func(string) string, stdout, stderr io.Writer) int {
	if err := python.HostPolicies(o.Memory.HostPolicies).Validate(); err != nil {
		fmt.Fprintln(stderr, settingHostPolicy(err))
		return 1
	}
	out, errs := newConsoles(stdout, stderr)
	defer out.flush()
	defer errs.flush()
	stdout, stderr = out, errs
	settings := newLogSettings(o.Log)
	log, lines, file, err := newLog(settings, getenv, stdout, stderr)
	out.log, errs.log = &log, &log
	if err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	if file != nil {
		defer file.Close()
	}
	for _, name := range o.NoEffect {
		log.Warn().Msg("--" + name + " is accepted but has no effect")
	}
	for _, strange := range o.strangeSettings() {
		log.Warn().Msg(strange)
	}
	running, abrupt, stopWatching := watchSignals(context.Background(), stdout, log)
	defer stopWatching()

	if err := o.checkRepository(); err != nil {
		lines.Table(o.optionTable(protocolVersion, server.Extensions()))
		fmt.Fprintln(stderr, creatingServer(err))
		return 1
	}
	r, err := newRooms(o, settings, log, out, errs)
	if err != nil {
		fmt.Fprintln(stderr, creatingServer(err))
		return 1
	}
	defer context.AfterFunc(abrupt, boundary.Guard(log, boundary.Server, func() {
		if errors.Is(context.Cause(abrupt), errSecondSignal) {
			r.endAtOnce(log)
		}
	}, func(error) { os.Exit(1) }))()
	defer r.close()
	defer r.keepAccount(getenv, log)()

	loaded := r.unusable
	if loaded == nil {
		loaded = r.registry.Start(running)
		lines.Table(agentTable())
		backends, versions := r.startRows(o)
		lines.Table(backendTable(backends))
		lines.Table(modelTable(versions))
	}
	if o.Metrics.Allow && o.Metrics.AllowCPU {
		log.Info().Msg("Collecting CPU metrics")
	}
	lines.Table(o.optionTable(protocolVersion, server.Extensions()))
	switch {
	case running.Err() != nil: // a signal came while models were loaded
		return r.shutdown(abrupt, o, log)
	case loaded != nil && o.ExitOnError:
		r.shutdown(abrupt, o, log)
		fmt.Fprintln(stderr, creatingServer(loaded))
		return 1
	case loaded != nil:
		log.Error().Msg(infer.AsError(loaded).Status())
	}

	if err := r.listen(o, log); err != nil {
		log.Error().Msg(err.Error())
		r.shutdown(abrupt, o, log)
		return 1
	}
	return r.serveUntil(running, abrupt, o, log)
}

// killLimit is how long the end of all model processes is waited for when the server
// ends at once.
const killLimit = 2 * time.Second

// endAtOnce ends the process with status 1, and all that models have started, whatever
// requests, models or clients wait for.
func (r *rooms) endAtOnce(log zerolog.Logger) {
	boundary.AfterFunc(log, boundary.Server, killLimit, func() { os.Exit(1) }, nil)
	if r.python != nil {
		r.python.KillAll()
	}
	log.Error().Msg("a second signal ended the server at once")
	os.Exit(1)
}

// serveUntil serves until running ends, then shuts down. The end of abrupt is the end
// of the process: see endAtOnce.
func (r *rooms) serveUntil(running, abrupt context.Context, o *Options, log zerolog.Logger) int {
	ended := make(chan error, len(r.fronts))
	stops := make([]context.CancelFunc, len(r.fronts))
	for i, f := range r.fronts {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		stops[i] = stop
		boundary.Go(log, boundary.Server, func() {
			err := boundary.Run(log, boundary.Server, func() error { return f.Run(ctx) })
			if err != nil {
				err = fmt.Errorf("%s service: %w", f.name, err)
			}
			ended <- err
		}, nil)
	}
	left := len(r.fronts)
	status := 0
	select {
	case <-running.Done():
	case err := <-ended:
		left--
		log.Error().Err(err).Msg("a service ended by itself")
		status = 1
	}

	r.registry.StopChanges() // or a load that hangs would be waited for
	// The front ends drain together; the metrics go last, so that the drain can
	// be watched.
	deadline, cancel := context.WithTimeout(abrupt, o.exitTimeout())
	defer cancel()
	drained, cancel := context.WithTimeout(abrupt, o.exitTimeout()-models.UnloadReserve(o.exitTimeout()))
	defer cancel()
	for i, f := range r.fronts {
		if f.name != metricsService {
			stops[i]()
		} else {
			left--
		}
	}
	for ; left > 0; left-- {
		select {
		case err := <-ended:
			if err != nil {
				log.Error().Msg(err.Error())
			}
			continue
		case <-drained.Done():
			// What handlers still wait for is models, whose turn to end it is.
		}
		break
	}
	if r.shutdownBy(deadline, abrupt, log) != 0 {
		status = 1
	}
	for ; left > 0; left-- {
		if err := <-ended; err != nil {
			log.Debug().Msg(err.Error())
		}
	}
	for _, stop := range stops {
		stop()
	}
	return status
}

func (o *Options) exitTimeout() time.Duration {
	return max(time.Duration(o.ExitTimeoutSeconds)*time.Second, 0)
}

func (r *rooms) shutdown(abrupt context.Context, o *Options, log zerolog.Logger) int {
	ctx, cancel := context.WithTimeout(abrupt, o.exitTimeout())
	defer cancel()
	return r.shutdownBy(ctx, abrupt, log)
}

// shutdownBy unloads the models by the end of ctx.
func (r *rooms) shutdownBy(ctx, abrupt context.Context, log zerolog.Logger) int {
	if err := r.registry.Shutdown(ctx); err != nil {
		if abrupt.Err() != nil {
			return 1 // endAtOnce says so
		}
		log.Error().Msg("failed to stop server: " + infer.AsError(err).Status())
		return 1
	}
	return 0
}

// listen binds the endpoints in Triton's order. The error is the line for the log.
func (r *rooms) listen(o *Options, log zerolog.Logger) error {
	for _, f := range r.fronts {
		if f.name != "GRPC" {
			log.Info().Msgf("Started %s at %s", f.title, f.where)
		}
		if err := f.Listen(); err != nil {
			if errors.Is(err, unix.EADDRINUSE) {
				return fmt.Errorf("failed to start %s service: Unavailable - Socket '%s' already in use ", f.name, f.where)
			}
			return fmt.Errorf("failed to start %s service: Unavailable - %w", f.name, err)
		}
		if f.name == "GRPC" {
			log.Info().Msgf("Started %s at %s", f.title, f.where)
		}
	}
	if len(r.fronts) == 0 {
		return errors.New("all services are switched off: allow HTTP, gRPC or metrics")
	}
	return nil
}
