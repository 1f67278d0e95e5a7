package nereid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/connections"
	"golang.org/x/sys/unix"
)

// Load loads the startup models. It returns why the repository or a model is unusable; the server
// can still serve the other models.
func (s *Server) Load(ctx context.Context) error {
	s.loaded = true
	if s.unusable != nil {
		return s.unusable
	}
	return s.registry.Start(ctx)
}

// CheckAddresses returns the error of the first endpoint with an unusable address, because Load may
// take minutes and Listen comes after it. An address in use is no error until then.
func (s *Server) CheckAddresses() error {
	for _, f := range s.fronts {
		if f.dispensable {
			continue
		}
		if err := connections.Check(f.address, f.port); err != nil {
			return f.startError(err, false)
		}
	}
	return nil
}

// Listen binds the endpoints in Triton's order, followed by the page. Clients that connect wait
// until Run.
func (s *Server) Listen() error {
	s.listening = true
	for _, f := range s.fronts {
		if said := f.name != grpcService && f.name != pageService; said {
			s.log.Info().Msgf("Started %s at %s", f.title, f.where)
		}
		if err := f.Listen(); err != nil {
			if f.dispensable {
				s.log.Warn().Msgf("the web page is not served: %v; choose another port with --http-ui-port, or disable it with --http-ui=false", err)
				continue
			}
			return f.startError(err, errors.Is(err, unix.EADDRINUSE))
		}
		f.listening = true
		switch f.name {
		case grpcService:
			s.log.Info().Msgf("Started %s at %s", f.title, f.where)
		case pageService:
			s.log.Info().Msgf("Started %s at http://%s", f.title, f.Addr())
			if tcp, ok := f.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
				s.log.Warn().Msgf("the web page has no password, and other machines can reach %s; restrict it to this machine with --http-ui-address=127.0.0.1", f.Addr())
			}
		}
	}
	s.fronts = slices.DeleteFunc(s.fronts, func(f *front) bool { return !f.listening })
	if len(s.fronts) == 0 {
		return errors.New("all services are switched off: allow HTTP, gRPC or metrics")
	}
	return nil
}

// Run checks the addresses, loads the models and listens, unless that has been done, and serves
// until ctx ends. It then serves for ExitDelay more and sends clients elsewhere. After that it
// accepts no connections, waits for requests in flight, and unloads the models, all within
// ExitTimeout. It returns nil if ctx ended it and nothing was left over. Errors while serving are
// logged when they happen.
func (s *Server) Run(ctx context.Context) error {
	if !s.loaded {
		if err := s.CheckAddresses(); err != nil {
			return errors.Join(err, s.Shutdown())
		}
		if err := s.Load(ctx); err != nil {
			if s.options.ExitOnError || ctx.Err() != nil {
				return errors.Join(err, s.Shutdown())
			}
			s.log.Error().Msg(infer.AsError(err).Detailed().Status())
		}
	}
	if !s.listening {
		if err := s.Listen(); err != nil {
			return errors.Join(err, s.Shutdown())
		}
	}
	return s.serve(ctx)
}

// metricsGrace limits the wait for the metrics endpoint, which stops last. The endpoint itself
// allows connections.CloseGrace for a hanging scrape.
const metricsGrace = connections.CloseGrace + time.Second

// outcome is the result of a front end's Run.
type outcome struct {
	front *front
	err   error
}

// serve serves until running ends, then shuts down.
func (s *Server) serve(running context.Context) error {
	abrupt, cancel := s.untilKilled()
	defer cancel()
	var drains, metrics []context.CancelFunc   // stop the front ends for requests, and the metrics endpoint
	ended := make(chan outcome, len(s.fronts)) // bound: one value from each front end
	for _, f := range s.fronts {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		if f.name == metricsService {
			metrics = append(metrics, stop) // bound: the front ends
		} else {
			drains = append(drains, stop) // bound: the front ends
		}
		s.start(ctx, f, ended)
	}
	requests, scrapes := len(drains), len(metrics) // front ends that still run
	take := func(o outcome) error {
		if o.front.name == metricsService {
			scrapes--
		} else {
			requests--
		}
		return o.err
	}
	var failed error
	select {
	case <-running.Done():
		if o, ok := s.leave(ended, abrupt); ok {
			failed = s.endedByItself(o, take(o))
		}
	case o := <-ended:
		failed = s.endedByItself(o, take(o))
	}

	s.registry.StopChanges() // a hanging load would delay the shutdown
	// The front ends drain together; the metrics go last, so that the drain can
	// be watched.
	limit := s.options.exitTimeout()
	deadline, cancel := exitWithin(abrupt, limit)
	defer cancel()
	drained, cancel := exitWithin(abrupt, limit-models.UnloadReserve(limit))
	defer cancel()
	for _, stop := range drains {
		stop()
	}
	for requests > 0 && drained.Err() == nil {
		select {
		case o := <-ended:
			if err := take(o); err != nil {
				s.log.Error().Msg(err.Error())
			}
		case <-drained.Done():
			// Handlers still wait only for models, which are stopped next.
		}
	}
	failed = errors.Join(failed, s.shutdownBy(deadline, abrupt))
	for requests > 0 {
		if err := take(<-ended); err != nil {
			s.log.Debug().Msg(err.Error())
		}
	}
	for _, stop := range metrics {
		stop()
	}
	grace := time.NewTimer(metricsGrace)
	defer grace.Stop()
	for scrapes > 0 {
		select {
		case o := <-ended:
			_ = take(o) // perhaps an interrupted scrape
		case <-grace.C:
			return failed
		}
	}
	return failed
}

// leave continues to serve for ExitDelay, so that load balancers can send clients elsewhere in
// time: the server is not ready, and each connection closes with its next reply. It returns early
// if a front end ends by itself, with its outcome, or if abrupt ends.
func (s *Server) leave(ended <-chan outcome, abrupt context.Context) (outcome, bool) {
	if s.options.ExitDelay <= 0 {
		return outcome{}, false
	}
	s.log.Info().Dur("wait", s.options.ExitDelay).Msg("no longer ready, but still serving")
	s.registry.Leave()
	for _, f := range s.fronts {
		if f.name != metricsService {
			f.Leave()
		}
	}
	over := time.NewTimer(s.options.ExitDelay)
	defer over.Stop()
	select {
	case o := <-ended:
		return o, true
	case <-over.C:
	case <-abrupt.Done():
	}
	return outcome{}, false
}

// endedByItself returns the error for a front end that was not told to stop.
func (s *Server) endedByItself(o outcome, err error) error {
	s.log.Error().Err(err).Msg("a service ended by itself")
	return cmp.Or(err, errors.New(o.front.name+" service: ended without an error"))
}

// start runs a front end in the background until ctx ends.
func (s *Server) start(ctx context.Context, f *front, ended chan<- outcome) {
	f.ran = true
	panics.Go(s.log, panics.Server, func() {
		err := panics.Run(s.log, panics.Server, func() error { return f.Run(ctx) })
		if err != nil {
			err = fmt.Errorf("%s service: %w", f.name, err)
		}
		ended <- outcome{f, err}
	}, nil)
}

// Shutdown unloads the models of a server without Run, within ExitTimeout.
func (s *Server) Shutdown() error {
	abrupt, cancel := s.untilKilled()
	defer cancel()
	ctx, cancel := exitWithin(abrupt, s.options.exitTimeout())
	defer cancel()
	return s.shutdownBy(ctx, abrupt)
}

// exitWithin returns a context that ends with ctx or after d, even if d is 0. Time during which
// this process was stopped does not count, or models would be killed before they are heard.
func exitWithin(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return panics.WithLimit(ctx, max(d, 1), context.DeadlineExceeded)
}

// shutdownBy unloads the models before ctx ends, and kills the remaining processes then.
func (s *Server) shutdownBy(ctx, abrupt context.Context) error {
	if s.supervisor != nil { // limits unloads that would give a process more time
		defer context.AfterFunc(ctx, panics.Guard(s.log, panics.Server, s.supervisor.KillAll, nil))()
	}
	err := s.registry.Shutdown(ctx)
	if err != nil && abrupt.Err() == nil { // otherwise Kill is the reason
		s.log.Error().Msg("failed to stop server: " + infer.AsError(err).Status())
	}
	if err != nil {
		return fmt.Errorf("unload models: %w", err)
	}
	return nil
}

// Kill kills the processes of all models and returns when they have ended. Run and
// Shutdown wait for nothing more.
func (s *Server) Kill() {
	s.mu.Lock()
	s.killed = true
	for _, cancel := range s.cancels {
		cancel()
	}
	s.mu.Unlock()
	if s.supervisor != nil {
		s.supervisor.KillAll()
	}
}

// untilKilled returns a context that Kill ends.
func (s *Server) untilKilled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels = append(s.cancels, cancel)
	if s.killed {
		cancel()
	}
	return ctx, cancel
}
