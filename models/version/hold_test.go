package version

import (
	"context"
	"testing"
)

// TestHoldsKeepAVersionFromEnding checks that a version ends only when its last hold is released,
// and that it cannot be held after the end has begun.
func TestHoldsKeepAVersionFromEnding(t *testing.T) {
	h := newHolds()
	for range 2 {
		if !h.take() {
			t.Fatal("a version cannot be held")
		}
	}
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.end(soon); err == nil {
		t.Error("the version ended although it is held")
	}
	if h.take() {
		t.Error("the version can be held although it ends")
	}
	h.release()
	select {
	case <-h.none:
		t.Error("the version ended although it is held")
	default:
	}
	h.release()
	<-h.none

	if err := newHolds().end(t.Context()); err != nil {
		t.Errorf("a version that nobody holds: %v", err)
	}
}
