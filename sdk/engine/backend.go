package engine

import (
	"fmt"
	"log/slog"
	"maps"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// Window bounds what is out of one request of a decoupled model; its zero values are 64 responses and 8 MiB.
type Window = execution.Window

// SmallOutput is up to how many bytes an output lies on the Go heap; Environment.Allocate lends memory for larger ones.
const SmallOutput = execution.SmallOutput

// Environment is what a backend runs in: this process, as a server or a plugin has it.
type Environment struct {
	Name      string
	Directory string            // where the backend's files lie; "" if it is linked in
	Settings  map[string]string // of --backend-config, merged; they are copied
	Message   string            // the same as Triton's backends get it
	// Log takes a message of the backend's own, and where its code stands. Enabled says which levels are worth
	// a message; nil: all.
	Log     func(level slog.Level, file string, line int, message string)
	Enabled func(level slog.Level) bool
	// Own takes what the engine has to say of the backend: faults and panics.
	Own zerolog.Logger
	// Allocate lends memory for an output, with one reference; nil: outputs lie on the Go heap.
	Allocate func(bytes int64) ([]byte, infer.Memory, error)
	// AnswersFirst: what Execute has answered is handed to the senders of its tasks before Batch.Done is called, and not after it.
	AnswersFirst bool
	// Later is told, by the instance's goroutine, that Execute has returned and Done comes later, as requests have not been released; what was
	// answered goes up right behind it. nil: nobody wants to know.
	Later func()
	// Trace returns what trace.Trace.Text gives of a request; nil: the request has its trace itself.
	Trace func(*infer.Request) string
	// Activity takes what the author reports of a request that is traced, at ns of CLOCK_MONOTONIC; nil: the request has its trace itself.
	Activity func(r *infer.Request, name string, at int64)
	Window   Window
}

// Backend is an author's backend that has been initialized.
type Backend struct {
	env        Environment
	backend    sdk.Backend
	sdk        *sdk.BackendEnv
	attributes sdk.Attributes
}

// Open initializes a backend. After an error nothing is left of it.
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

// Attributes returns what the backend says of itself.
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

// apart is hook for functions that the caller's goroutine must survive: an author's function may end its own, by runtime.Goexit, which is
// an error as a panic is.
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

// gone logs that an author's function has ended its goroutine and returns what clients are told.
func (b *Backend) gone(hook, of string) *infer.Error {
	err := b.fault(hook, of, "ended its goroutine")
	b.env.Own.Error().Msg(err.Message)
	return err
}

// fault is what clients are told of an author's function that did not return.
func (b *Backend) fault(hook, of, what string) *infer.Error {
	where := "backend '" + b.env.Name + "'"
	if of != "" {
		where += ", " + of
	}
	return infer.Errorf(infer.Internal, "%s: %s %s", where, hook, what)
}

// panicked logs a panic of an author's function and returns what clients are told.
func (b *Backend) panicked(hook, of string, value any) *infer.Error {
	err := b.fault(hook, of, "panicked")
	b.env.Own.Error().Str("error", text(value)).Bytes("stack", stack()).Msg(err.Message)
	return err
}

// text prints a value whose own methods may panic too.
func text(value any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a panic with a %T", value)
		}
	}()
	return fmt.Sprint(value)
}
