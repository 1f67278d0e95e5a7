package panics_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

func count(where panics.Where) uint64 {
	var n uint64
	panics.Counts(func(w panics.Where, panics func() uint64) {
		if w == where {
			n = panics()
		}
	})
	return n
}

// TestAPanicEndsAtItsBoundary checks that the owner's cleanup gets an error without details for
// clients, the log has the cause and the stack, and the metric counts the panic.
func TestAPanicEndsAtItsBoundary(t *testing.T) {
	var log bytes.Buffer
	before := count(panics.Life)
	var mu sync.Mutex
	failed := make(chan error, 1)
	panics.Go(zerolog.New(&log), panics.Life, func() {
		mu.Lock()
		defer mu.Unlock()
		var none []int
		_ = none[len(none)]
	}, func(err error) { failed <- err })

	err := <-failed
	var caught *panics.Error
	if !errors.As(err, &caught) || caught.Where != panics.Life || err.Error() != "internal error" {
		t.Errorf("got %#v, want an Error of life without a cause in its text", err)
	}
	if !mu.TryLock() {
		t.Error("the lock is held after the panic, want it free")
	}
	if text := log.String(); !strings.Contains(text, "index out of range") || !strings.Contains(text, "panics_test.go") {
		t.Errorf("got the log %s, want cause and stack", text)
	}
	if n := count(panics.Life); n != before+1 {
		t.Errorf("got %d panics counted, want %d", n, before+1)
	}
}

func TestAPanicInTheCleanUpEndsToo(t *testing.T) {
	var log bytes.Buffer
	panics.Guard(zerolog.New(&log), panics.Models, func() { panic("first") }, func(error) { panic("second") })()
	if text := log.String(); !strings.Contains(text, "first") || !strings.Contains(text, "second") {
		t.Errorf("got the log %s, want both panics", text)
	}
}

func TestPanicsInTimersAndGroupsAreHandled(t *testing.T) {
	log := zerolog.New(zerolog.SyncWriter(&bytes.Buffer{}))
	var group sync.WaitGroup
	ended := make(chan error, 3)
	group.Go(panics.Guard(log, panics.Request, func() { panic("in a group") }, func(err error) { ended <- err }))
	group.Wait()
	panics.AfterFunc(log, panics.Request, time.Nanosecond, func() { panic("in a timer") }, func(err error) { ended <- err })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	context.AfterFunc(ctx, panics.Guard(log, panics.Request, func() { panic("at the end of a context") }, func(err error) { ended <- err }))
	for range cap(ended) {
		if err := <-ended; err == nil {
			t.Error("got no error, want one")
		}
	}
}

func TestRunReturnsTheResultOfItsFunction(t *testing.T) {
	log := zerolog.Nop()
	want := errors.New("full")
	if err := panics.Run(log, panics.Request, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if err := panics.Run(log, panics.Request, func() error { return nil }); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// spiteful panics when its text is requested.
type spiteful struct{}

func (spiteful) Error() string { panic("once more") }

func TestAValueThatCannotBePrinted(t *testing.T) {
	var log bytes.Buffer
	err := panics.Run(zerolog.New(&log), panics.Request, func() error { panic(error(spiteful{})) })
	if err == nil || log.Len() == 0 {
		t.Errorf("got %v and the log %q, want an error and a line", err, log.String())
	}
}
