package cli_test

import (
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/cli"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestWatchSignalsCountsABurstOnce checks that two signals within signalBurst count as one. It
// retries because a busy machine may delay the second signal.
func TestWatchSignalsCountsABurstOnce(t *testing.T) {
	for range 100 {
		if watchOneBurst(t) {
			return
		}
	}
	t.Fatal("no second signal came as soon after the first as those of one burst do")
}

// watchOneBurst checks one burst. It reports false if the two signals were further apart than
// signalBurst, which proves nothing.
func watchOneBurst(t *testing.T) bool {
	t.Helper()
	const patience = time.Minute
	var out testkit.Buffer
	graceful, abrupt, stop := cli.WatchSignals(t.Context(), &out, zerolog.Nop())
	defer stop()
	kill := func(s unix.Signal) {
		if err := unix.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}

	kill(unix.SIGPIPE)
	begin := time.Now()
	kill(unix.SIGTERM)
	<-graceful.Done()
	if abrupt.Err() != nil {
		t.Fatal("the first signal ended the server at once")
	}
	testkit.Eventually(t, patience, func() bool { return out.String() == "Signal (15) received.\n" })
	kill(unix.SIGINT) // in the same burst
	want := "Signal (15) received.\nSignal (2) received.\n"
	testkit.Eventually(t, patience, func() bool { return out.String() == want })
	ended := abrupt.Err() != nil
	if time.Since(begin) > cli.SignalBurst {
		return false
	}
	if ended {
		t.Fatal("a signal of the first burst ended the server at once")
	}
	testkit.Eventually(t, patience, func() bool {
		kill(unix.SIGINT)
		return abrupt.Err() != nil
	})
	return true
}

func TestWatchSignalsStops(t *testing.T) {
	graceful, abrupt, stop := cli.WatchSignals(t.Context(), &testkit.Buffer{}, zerolog.Nop())
	stop()
	if graceful.Err() == nil || abrupt.Err() == nil {
		t.Error("a context has not ended")
	}
}
