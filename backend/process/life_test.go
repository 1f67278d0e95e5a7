package process

import (
	"errors"
	"testing"
	"time"
)

// TestAwaitTellsWhyALifeHasFailed though the stub has said what it was to say: it
// may have been faster than who kills it.
func TestAwaitTellsWhyALifeHasFailed(t *testing.T) {
	why := errors.New("it cannot run there")
	for range 100 {
		l := &life{}
		l.ending.begin()
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
