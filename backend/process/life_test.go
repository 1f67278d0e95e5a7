package process

import (
	"errors"
	"testing"
	"time"
)

// TestAwaitTellsWhyALifeHasFailed checks that await returns the life's failure even if the awaited
// message has arrived. The stub may have been faster than its killer.
func TestAwaitTellsWhyALifeHasFailed(t *testing.T) {
	why := errors.New("it cannot run there")
	for range 100 {
		l := &life{}
		l.ending.begin()
		l.host = &host{exited: make(chan struct{})}
		said := make(chan error, 1)
		said <- nil
		l.failed <- why
		close(l.read)
		close(l.exited)
		if err := l.await(t.Context(), said, time.Minute, "say HELLO"); !errors.Is(err, why) {
			t.Fatalf("got %v, want %v", err, why)
		}
	}
}
