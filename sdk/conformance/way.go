package conformance

import (
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/linked"
)

// Way runs the backend under test.
type Way interface {
	// Open starts the backend under the given name, with log as its log. close ends it.
	Open(name string, log zerolog.Logger) (b backend.Backend, close func(), err error)
	// InProcess reports whether the backend runs in this process, so that its goroutine leaks are
	// visible.
	InProcess() bool
}

// Linked runs a backend in this process, as servers run linked-in backends.
func Linked(open sdk.New) Way { return inProcess{open} }

type inProcess struct{ open sdk.New }

// InProcess implements Way.
func (inProcess) InProcess() bool { return true }

// Open implements Way.
func (w inProcess) Open(name string, log zerolog.Logger) (backend.Backend, func(), error) {
	b := linked.New(name, w.open, linked.Config{Log: log})
	return b, b.Close, nil
}
