package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/devserver"
	"github.com/nereid-serving/nereid/cli/entry"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/cli/notify"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/processors"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/status"
)

// rootLimit limits the wait for a repository that another container mounts. Startup probes allow
// the same time.
const rootLimit = 5 * time.Minute

// serve starts the server and runs it until a signal ends it. It returns the
// exit status.
func serve(o *flags.Options, getenv func(string) string, stdout, stderr io.Writer) int {
	if err := o.HostPolicies.Validate(); err != nil {
		fmt.Fprintln(stderr, settingHostPolicy(err))
		return 1
	}
	out, errs := logs.NewConsoles(stdout, stderr)
	defer out.Flush()
	defer errs.Flush()
	stdout, stderr = command.Printable(out), command.Printable(errs)
	settings := logs.NewSettings(o.Log)
	log, lines, file, err := logs.New(settings, getenv, out, errs)
	out.Log, errs.Log = &log, &log
	kept := &status.Log{}
	if lines != nil {
		lines.Keep = kept.Add
	}
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
	manager := notify.Open(getenv, log)
	defer manager.Close()
	running, abrupt, stopWatching := watchSignals(context.Background(), stdout, log)
	defer stopWatching()
	defer context.AfterFunc(running, panics.Guard(log, panics.Server, func() {
		manager.Stopping(max(o.ExitDelay, 0) + max(o.ExitTimeout, 0) + stopReserve)
	}, nil))()

	if err := checkRepository(o); err != nil {
		lines.Table(optionTable(o, nereid.ProtocolVersion, server.Extensions()))
		fmt.Fprintln(stderr, creatingServer(err))
		return 1
	}
	if getenv("MODEL_INIT_MODE") == "async" {
		log.Info().Msg("MODEL_INIT_MODE is async: waiting for the model repository")
		if err := entry.AwaitRoots(running, o.Repository.Paths, rootLimit); err != nil {
			if running.Err() != nil { // a signal arrived meanwhile
				return 0
			}
			fmt.Fprintln(stderr, creatingServer(err))
			return 1
		}
	}
	options, err := o.ServerOptions(settings, getenv, log, out, errs)
	if err != nil {
		fmt.Fprintln(stderr, creatingServer(err))
		return 1
	}
	for _, strange := range o.StrangeSettings() {
		log.Warn().Msg(strange)
	}
	options.Lines, options.Build = kept, version
	shown := screen{settings: settings, lines: lines, progress: newProgress(lines, out, getenv), stdout: stdout, stderr: stderr}
	if shown.progress != nil {
		options.Loads = shown.progress
		defer shown.progress.Close()
	}
	if o.Repository.Develop {
		if terminal := devserver.OpenTerminal(log); terminal != nil {
			defer terminal.Close()
			options.Busy = terminal.IsLent
		}
	}
	options.Repository.Stop = running.Done()
	s, err := nereid.New(options)
	if err != nil && running.Err() != nil { // a signal arrived while waiting for a store
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, creatingServer(err))
		return 1
	}
	defer context.AfterFunc(abrupt, panics.Guard(log, panics.Server, func() {
		if errors.Is(context.Cause(abrupt), errSecondSignal) {
			endAtOnce(s, log)
		}
	}, func(error) { os.Exit(1) }))()
	ended, end := context.WithCancel(context.Background())
	defer context.AfterFunc(running, panics.Guard(log, panics.Server, func() {
		if lines.Interactive() {
			tellOfEnd(o, ended, s.Registry(), stdout)
		}
	}, nil))()
	defer s.Close()
	defer end()
	return runServer(o, running, s, manager, shown, log)
}

// stopReserve is time for shutdown in addition to the time limits in flags.
const stopReserve = 10 * time.Second

// screen shows the startup.
type screen struct {
	settings       *logs.Settings
	lines          *logs.Writer
	progress       *devserver.Progress // nil unless the log is interactive
	stdout, stderr io.Writer
}

// runServer loads the models, shows the start-up tables and serves until running ends. It
// returns the exit status.
func runServer(o *flags.Options, running context.Context, s *nereid.Server, manager *notify.Manager, shown screen, log zerolog.Logger) int {
	if err := s.CheckAddresses(); err != nil {
		log.Error().Msg(err.Error())
		s.Shutdown() //nolint:errcheck // it is logged, and the status has a more important cause
		return 1
	}
	shown.settings.SetStarting(true)
	loaded := s.Load(running)
	shown.settings.SetStarting(false)
	if shown.progress != nil {
		shown.progress.Close()
	}
	if s.RepositoryError() == nil {
		shown.lines.Table(agentTable())
		backends, versions := startRows(o, s)
		shown.lines.Table(backendTable(backends))
		shown.lines.Table(modelTable(versions))
	}
	if o.Metrics.Allow && o.Metrics.Series.GPU {
		for _, one := range s.Devices() {
			log.Info().Msgf("Collecting metrics for GPU %d: %s", one.Number, one.Name)
		}
	}
	if o.Metrics.Allow && o.Metrics.Series.CPU {
		log.Info().Msg("Collecting CPU metrics")
	}
	fillPools(o, s.Devices())
	shown.lines.Table(optionTable(o, nereid.ProtocolVersion, server.Extensions()))
	switch {
	case running.Err() != nil: // a signal arrived while models were loading
		return exitStatus(s.Shutdown())
	// nereid serve keeps running so that broken models can be repaired, but not without a repository.
	case loaded != nil && (o.ExitOnError || o.Log.Interactive && s.RepositoryError() != nil):
		s.Shutdown() //nolint:errcheck // it is logged, and the status has a more important cause
		fmt.Fprintln(shown.stderr, creatingServer(loaded))
		tellNotLoaded(loaded, func(_, line string) { fmt.Fprintln(shown.stderr, line) })
		return 1
	case loaded != nil:
		log.Error().Msg(infer.AsError(loaded).Detailed().Status())
		tellNotLoaded(loaded, func(model, line string) {
			switch {
			case shown.progress == nil:
				log.Error().Msg(line)
			case !shown.progress.HasFailed(model):
				fmt.Fprintln(shown.stderr, line)
			}
		})
	}

	if err := s.Listen(); err != nil {
		log.Error().Msg(err.Error())
		s.Shutdown() //nolint:errcheck // it is logged, and the status has a more important cause
		return 1
	}
	if shown.progress != nil {
		fmt.Fprint(shown.stdout, addresses(o, s))
	}
	manager.Ready(serving(s), notify.Probe([]net.Addr{s.HTTPAddr(), s.MetricsAddr(), s.SageMakerAddr(), s.VertexAIAddr(), s.OpenAIAddr()}, func() error {
		_, err := s.Registry().Live()
		return err
	}))
	if err := releaseStartup(); err != nil {
		log.Debug().Msgf("the memory of the startup is not released: %v", err)
	}
	panics.Go(log, panics.Server, func() {
		processors.Follow(running, func(now, most int) {
			log.Debug().Msgf("using %d of %d processors", now, most)
		})
	}, nil)
	return exitStatus(s.Run(running))
}

// serving returns the status line of a ready server for a service manager.
func serving(s *nereid.Server) string {
	good, bad := 0, 0
	for _, v := range s.Registry().Attempted() {
		if v.State == catalog.Ready {
			good++
		} else {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Sprintf("Model versions loaded: %d; failed to load: %d, see the log", good, bad)
	}
	return fmt.Sprintf("Model versions loaded: %d", good)
}

// exitStatus returns the exit status for an outcome that the server has logged.
func exitStatus(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// killLimit limits the wait for killed model processes when the server ends at once.
const killLimit = 2 * time.Second

// endAtOnce kills all processes that models have started and exits with status 1, without waiting
// for requests, models or clients.
func endAtOnce(s *nereid.Server, log zerolog.Logger) {
	panics.AfterFunc(log, panics.Server, killLimit, func() { os.Exit(1) }, nil)
	log.Error().Msg("stopped at once because of a second signal")
	s.Kill() // may take longer than killLimit
	os.Exit(1)
}
