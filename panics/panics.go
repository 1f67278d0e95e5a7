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
	Request    Where = "request"    // one request, whichever way it came
	Models     Where = "models"     // load, unload, poll, warm-up
	Scheduler  Where = "scheduler"  // queues, batches and their timers
	Life       Where = "life"       // one stub process and what belongs to it
	Memory     Where = "memory"     // giving memory back
)

// counts has a counter for each part. It is the process's, as a panic is: a boundary
// must not depend on what has been handed to it.
var counts = map[Where]*atomic.Uint64{
	Server: {}, Connection: {}, Request: {}, Models: {}, Scheduler: {}, Life: {}, Memory: {},
}

// Counts calls yield with each part and what reads the number of its panics.
func Counts(yield func(where Where, panics func() uint64)) {
	for where, n := range counts {
		yield(where, n.Load)
	}
}

// Error is a panic that ended at a boundary. Its text is for clients and tells
// nothing of the cause, which is in the log.
type Error struct {
	Where Where
	Value any // of the panic
}

// Error implements error.
func (*Error) Error() string { return "internal error" }

// Go runs f in a goroutine of its own behind a boundary. After a panic, failed is
// called in that goroutine; nil means that there is nothing to clean up.
func Go(log zerolog.Logger, where Where, f func(), failed func(error)) {
	go Guard(log, where, f, failed)()
}

// AfterFunc is time.AfterFunc with f behind a boundary.
func AfterFunc(log zerolog.Logger, where Where, wait time.Duration, f func(), failed func(error)) *time.Timer {
	return time.AfterFunc(wait, Guard(log, where, f, failed))
}

// Guard returns f behind a boundary, for whatever starts goroutines of its own, such
// as sync.WaitGroup.Go and context.AfterFunc. After a panic, failed is called; a panic
// in failed ends here as well.
func Guard(log zerolog.Logger, where Where, f func(), failed func(error)) func() {
	return func() {
		err := Run(log, where, func() error { f(); return nil })
		if err != nil && failed != nil {
			_ = Run(log, where, func() error { failed(err); return nil })
		}
	}
}

// Run calls f in this goroutine and makes a panic in it an *Error.
func Run(log zerolog.Logger, where Where, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if value := recover(); value != nil {
			err = Caught(log, where, value)
		}
	}()
	return f()
}

// Recover makes a panic of the calling function an *Error in err. It is deferred
// itself: a recover works in the deferred function alone.
func Recover(log *zerolog.Logger, where Where, err *error) {
	if value := recover(); value != nil {
		*err = Caught(*log, where, value)
	}
}

// Caught logs and counts what a caller's own recover returned. It is for a caller that
// decides by the value.
func Caught(log zerolog.Logger, where Where, value any) *Error {
	if n := counts[where]; n != nil {
		n.Add(1)
	}
	stack := debug.Stack()
	event := log.Error()
	if event == nil {
		// A panic is told even where errors are not logged.
		fmt.Fprintf(os.Stderr, "internal error in %s: %v\n%s", where, value, stack)
	}
	event.Str("where", string(where)).Str("error", text(value)).Bytes("stack", stack).Msg("internal error, the rest goes on")
	return &Error{Where: where, Value: value}
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
