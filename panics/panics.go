package panics

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Where is the part of the supervisor that panicked: the label of the metric.
type Where string

// The parts of the supervisor.
const (
	Server     Where = "server"     // accepting, signals, start and end
	Connection Where = "connection" // of HTTP or gRPC, between its requests
	Request    Where = "request"    // one request of any origin
	Models     Where = "models"     // load, unload, poll, warm-up
	Scheduler  Where = "scheduler"  // queues, batches and their timers
	Life       Where = "life"       // one stub process and everything that belongs to it
	Memory     Where = "memory"     // giving memory back
)

// counts has a counter for each part. It is global: a boundary must not depend on its callers'
// configuration.
var counts = map[Where]*atomic.Uint64{
	Server: {}, Connection: {}, Request: {}, Models: {}, Scheduler: {}, Life: {}, Memory: {},
}

// Counts calls yield with each part and a function that reads its number of panics.
func Counts(yield func(where Where, panics func() uint64)) {
	for where, n := range counts {
		yield(where, n.Load)
	}
}

// Error is a panic that ended at a boundary. Its text is for clients and does not reveal the cause,
// which is in the log.
type Error struct {
	Where Where
	Value any // of the panic
}

// Error implements error.
func (*Error) Error() string { return "internal error" }

// Go runs f in a goroutine behind a boundary. After a panic it calls failed in that goroutine; nil
// means that nothing has to be cleaned up.
func Go(log zerolog.Logger, where Where, f func(), failed func(error)) {
	go Guard(log, where, f, failed)()
}

// AfterFunc is time.AfterFunc with f behind a boundary.
func AfterFunc(log zerolog.Logger, where Where, wait time.Duration, f func(), failed func(error)) *time.Timer {
	return time.AfterFunc(wait, Guard(log, where, f, failed))
}

// Guard returns f behind a boundary, for functions that start goroutines themselves, such as
// sync.WaitGroup.Go and context.AfterFunc. After a panic it calls failed; a panic in failed ends
// here as well.
func Guard(log zerolog.Logger, where Where, f func(), failed func(error)) func() {
	return func() {
		err := Run(log, where, func() error { f(); return nil })
		if err != nil && failed != nil {
			_ = Run(log, where, func() error { failed(err); return nil })
		}
	}
}

// Run calls f in this goroutine and turns a panic in it into an *Error.
func Run(log zerolog.Logger, where Where, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if value := recover(); value != nil {
			err = Caught(log, where, value)
		}
	}()
	return f()
}

// Recover turns a panic of the calling function into an *Error in err. It is deferred directly:
// recover works only in the deferred function itself.
func Recover(log *zerolog.Logger, where Where, err *error) {
	if value := recover(); value != nil {
		*err = Caught(*log, where, value)
	}
}

// Caught logs and counts a value returned by the caller's own recover. It is for a caller that
// decides by the value.
func Caught(log zerolog.Logger, where Where, value any) *Error {
	if n := counts[where]; n != nil {
		n.Add(1)
	}
	stack := debug.Stack()
	event := log.Error()
	if event == nil {
		// Panics are reported even if errors are not logged.
		fmt.Fprintf(os.Stderr, "internal error in %s: %v\n%s", where, value, stack)
	}
	event.Str("where", string(where)).Str("error", Text(value)).Bytes("stack", stack).Msg("internal error; the server continues")
	return &Error{Where: where, Value: value}
}

// Text prints a value whose own methods may panic too.
func Text(value any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a panic with a %T", value)
		}
	}()
	return fmt.Sprint(value)
}
