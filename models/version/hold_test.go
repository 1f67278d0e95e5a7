package version_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// untilClosing waits until the close of a version has begun: it can no longer be held.
func untilClosing(t *testing.T, v *version.Version) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool {
		h, can := v.Hold()
		if can {
			h.Release()
		}
		return !can
	})
}

// TestHoldsKeepAVersionFromEnding checks that a version ends only when its last hold is released,
// unless the registry's lifetime is over, and that it accepts no requests after the end has begun.
func TestHoldsKeepAVersionFromEnding(t *testing.T) {
	for _, forced := range []bool{false, true} {
		s := newShelf(t, writeModel(t, ""), &echoes{}, nil)
		var end context.CancelFunc
		s.lifetime, end = context.WithCancel(t.Context())
		defer end()
		v := s.mustLoad("m")
		var held [2]version.Held
		for i := range held {
			var can bool
			if held[i], can = v.Hold(); !can {
				t.Fatal("a version cannot be held")
			}
		}
		delete(s.versions, repository.Identity{Name: "m"})
		closed := make(chan error, 1) // one value
		go func() { closed <- v.Close() }()
		untilClosing(t, v)
		if err := v.Infer(t.Context(), &infer.Request{Model: "m"}, func(*infer.Response) {}); !errors.Is(err, version.ErrReplaced) {
			t.Errorf("got error %v, want %v", err, version.ErrReplaced)
		}
		held[0].Release()
		if len(closed) > 0 {
			t.Error("the version ended although it is held")
		}
		if forced {
			end()
			if err := <-closed; err == nil {
				t.Error("the version ended without an error although it is held")
			}
			held[1].Release()
			continue
		}
		held[1].Release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}
