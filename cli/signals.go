package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// signalBurst is the time within which two signals count as one: timeout(1) and some supervisors
// send one to the process and again to its group.
const signalBurst = 200 * time.Millisecond

// errSecondSignal is the cause with which the context abrupt ends.
var errSecondSignal = errors.New("a second signal came")

// watchSignals prints a line for each SIGINT and SIGTERM. The first ends the context graceful: the
// server drains and exits. A second one after the first burst ends abrupt: the server exits at
// once. SIGPIPE has no effect, because a closed console is no reason to stop. stop ends the watch
// and both contexts.
func watchSignals(parent context.Context, stdout io.Writer, log zerolog.Logger) (graceful, abrupt context.Context, stop func()) {
	abrupt, endAbrupt := context.WithCancelCause(parent)
	graceful, endGraceful := context.WithCancel(abrupt)

	// Handled rather than ignored, because child processes inherit ignored signals.
	pipe := make(chan os.Signal, 1) // written by package signal, never read, never closed
	signal.Notify(pipe, unix.SIGPIPE)
	received := make(chan os.Signal, 4) // written by package signal; more than four at once count as one
	signal.Notify(received, unix.SIGINT, unix.SIGTERM)

	done := make(chan struct{})    // closed by stop
	watched := make(chan struct{}) // closed by the goroutine, which prints nothing after that
	panics.Go(log, panics.Server, func() {
		defer close(watched)
		var first time.Time
		for {
			select {
			case s := <-received:
				switch {
				case first.IsZero():
					first = time.Now()
					endGraceful()
				case time.Since(first) > signalBurst:
					endAbrupt(errSecondSignal)
				}
				// Printed last, because it blocks if the output is not read.
				fmt.Fprintf(stdout, "Signal (%d) received.\n", s)
			case <-done:
				return
			}
		}
	}, func(error) { endGraceful() })
	return graceful, abrupt, func() {
		signal.Stop(pipe)
		signal.Stop(received)
		close(done)
		<-watched
		endAbrupt(nil)
		endGraceful()
	}
}
