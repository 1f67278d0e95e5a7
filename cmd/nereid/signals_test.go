package main

import (
	"os"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

func TestWatchSignals(t *testing.T) {
	var out testkit.Buffer
	graceful, abrupt, stop := watchSignals(t.Context(), &out)
	defer stop()
	kill := func(s unix.Signal) {
		if err := unix.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}

	kill(unix.SIGPIPE)
	kill(unix.SIGTERM)
	<-graceful.Done()
	if abrupt.Err() != nil {
		t.Fatal("the first signal ended the server at once")
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return out.String() == "Signal (15) received.\n" })
	kill(unix.SIGINT) // of the same burst
	want := "Signal (15) received.\nSignal (2) received.\n"
	testkit.Eventually(t, 10*time.Second, func() bool { return out.String() == want })
	if abrupt.Err() != nil {
		t.Fatal("a signal of the first burst ended the server at once")
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		kill(unix.SIGINT)
		return abrupt.Err() != nil
	})
}

func TestWatchSignalsStops(t *testing.T) {
	graceful, abrupt, stop := watchSignals(t.Context(), &testkit.Buffer{})
	stop()
	if graceful.Err() == nil || abrupt.Err() == nil {
		t.Error("a context has not ended")
	}
}
