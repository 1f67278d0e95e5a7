package conformance

import (
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/linked"
)

// Way is how the backend under test is run.
type Way interface {
	// Open starts a life of the backend, which models call name and which logs to log. close ends it.
	Open(name string, log zerolog.Logger) (b backend.Backend, close func(), err error)
	// InProcess reports whether the backend runs in this process, so that goroutines which it leaves behind are seen.
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
