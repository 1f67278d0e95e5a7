package engine

import (
	"log/slog"
	"maps"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// WindowLimits bounds the responses of one request of a decoupled model that are on their way to
// the client; zero values mean 64 responses and 8 MiB.
type WindowLimits = execution.WindowLimits

// SmallOutput is the largest size of an output on the Go heap; Environment.Allocate lends memory
// for larger ones.
const SmallOutput = execution.SmallOutput

// Environment is the environment of a backend: a server's process or a plugin's.
type Environment struct {
	Name      string
	Directory string            // of the backend's files; "" if it is linked in
	Settings  map[string]string // of --backend-config, merged; copied
	Message   string            // in the form of Triton's backends
	// Log logs a message of the backend, with the position of its code. Enabled reports whether a
	// level is logged; nil means that all are.
	Log     func(level slog.Level, file string, line int, message string)
	Enabled func(level slog.Level) bool
	// Own logs faults and panics of the backend.
	Own zerolog.Logger
	// Allocate lends memory for an output, with one reference; nil: outputs lie on the Go heap.
	Allocate func(bytes int64) ([]byte, infer.Memory, error)
	// AnswersFirst passes responses of Execute to the senders of its tasks before Batch.Done instead
	// of after it.
	AnswersFirst bool
	// Later, if not nil, is called by the instance's goroutine when Execute has returned but Done is
	// delayed because requests have not been released. The responses of Execute follow at once.
	Later func()
	// Trace returns the trace.Trace.Text of a request; nil means that the request has its trace
	// itself.
	Trace func(*infer.Request) string
	// Activity records an author's report about a traced request, at ns of CLOCK_MONOTONIC; nil means
	// that the request has its trace itself.
	Activity func(r *infer.Request, name string, at int64)
	Window   WindowLimits
}

// Backend is an initialized backend.
type Backend struct {
	env        Environment
	backend    sdk.Backend
	sdk        *sdk.BackendEnv
	attributes sdk.Attributes
}

// Open initializes a backend. After an error nothing remains.
func Open(initialize sdk.New, env Environment) (*Backend, error) {
	settings := make(map[string]string, len(env.Settings))
	maps.Copy(settings, env.Settings)
	b := &Backend{env: env}
	b.sdk = &sdk.BackendEnv{Name: env.Name, Directory: env.Directory, Settings: settings, Message: env.Message, Log: b.logger()}
	err := b.apart("New", "", func() (err error) {
		b.backend, err = initialize(b.sdk)
		return err
	})
	if err == nil && b.backend == nil {
		err = infer.Errorf(infer.Internal, "backend '%s': New returned no backend", env.Name)
	}
	if err != nil {
		return nil, err
	}
	err = b.apart("Attributes", "", func() error {
		b.attributes = b.backend.Attributes()
		return nil
	})
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Name returns the backend's name.
func (b *Backend) Name() string { return b.env.Name }

// Attributes returns the backend's attributes.
func (b *Backend) Attributes() sdk.Attributes { return b.attributes }

// Close ends the backend. All of its models have been closed.
func (b *Backend) Close() {
	_ = b.apart("Close", "", func() error {
		b.backend.Close()
		return nil
	})
}

// hook calls an author's function. A panic in it is logged with its stack, and becomes an error.
func (b *Backend) hook(name, of string, f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = b.panicked(name, of, value)
		}
	}()
	if failure := execution.Failure(f()); failure != nil {
		return failure
	}
	return nil
}

// apart is hook for functions that must not end the caller's goroutine: if an author's function
// calls runtime.Goexit, that is an error like a panic.
func (b *Backend) apart(name, of string, f func() error) error {
	outcome := make(chan error, 1) // one value, from the goroutine
	panics.Go(b.env.Own, panics.Models, func() {
		returned := false
		var err error
		defer func() {
			if !returned {
				err = b.gone(name, of)
			}
			outcome <- err
		}()
		err = b.hook(name, of, f)
		returned = true
	}, nil)
	return <-outcome
}

// gone logs that an author's function has ended its goroutine, and returns the text for clients.
func (b *Backend) gone(hook, of string) *infer.Error {
	err := b.fault(hook, of, "ended its goroutine")
	b.env.Own.Error().Msg(err.Message)
	return err
}

// fault returns the text for clients about an author's function that did not return.
func (b *Backend) fault(hook, of, what string) *infer.Error {
	where := "backend '" + b.env.Name + "'"
	if of != "" {
		where += ", " + of
	}
	return infer.Errorf(infer.Internal, "%s: %s %s", where, hook, what)
}

// panicked logs a panic of an author's function, and returns the text for clients.
func (b *Backend) panicked(hook, of string, value any) *infer.Error {
	err := b.fault(hook, of, "panicked")
	b.env.Own.Error().Str("error", panics.Text(value)).Bytes("stack", stack()).Msg(err.Message)
	return err
}
