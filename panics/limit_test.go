package panics

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// TestLimitAfterALateTick checks how much of a limit is left after a tick that took
// longer than planned.
func TestLimitAfterALateTick(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		left, tick, took time.Duration
		waited           bool
		want             time.Duration
	}{
		"a tick in time":                           {5 * second, second, second, false, 4 * second},
		"a tick that is a little late":             {5 * second, second, 3 * second / 2, false, 7 * second / 2},
		"a pause":                                  {5 * second, second, time.Hour, false, 4 * second},
		"the last tick in time":                    {second, second, second, false, 0},
		"a pause in the last tick":                 {second, second, time.Hour, false, second},
		"a pause in the last tick, which is short": {second / 4, second / 4, time.Hour, false, second},
		"a pause before a short rest":              {5 * second / 4, second, time.Hour, false, second},
		"a pause in the tick that was added":       {second, second, time.Hour, true, 0},
	} {
		l := &Limit{left: c.left, tick: c.tick, step: second, waited: c.waited}
		if l.countLocked(c.took); l.left != c.want {
			t.Errorf("%s: %s are left, want %s", name, l.left, c.want)
		}
	}
}

// TestLimitEndsInTime checks that limits end on time, that stopped limits do not call their
// function, and that a limit of 0 never ends.
func TestLimitEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, late := time.Now(), errors.New("late")
		for _, d := range []time.Duration{time.Millisecond, 333 * time.Millisecond, time.Minute} {
			l := NewLimit(d)
			<-l.C
			if took := time.Since(began); took != d {
				t.Errorf("a limit of %s took %s", d, took)
			}
			l.Stop()
			began = time.Now()
			ctx, cancel := WithLimit(t.Context(), d, late)
			<-ctx.Done()
			if took := time.Since(began); took != d || context.Cause(ctx) != late {
				t.Errorf("a context of %s took %s and ended with %v", d, took, context.Cause(ctx))
			}
			if left := Left(ctx); left != 0 {
				t.Errorf("a context that has ended has %s left", left)
			}
			cancel()
			began = time.Now()
		}
		ctx, cancel := WithLimit(t.Context(), time.Minute, late)
		time.Sleep(time.Second * 5 / 2)
		if left := Left(context.WithValue(ctx, late, late)); left != time.Minute-time.Second*5/2 {
			t.Errorf("after 2.5 s, %s are left of a minute", left)
		}
		cancel()
		if left := Left(t.Context()); left != 0 {
			t.Errorf("a context without a limit has %s left", left)
		}
		calls := make(chan struct{}, 2)
		stopped := AfterLimit(zerolog.Nop(), Life, time.Second, func() { calls <- struct{}{} }, nil)
		stopped.Stop()
		never, end := WithLimit(t.Context(), 0, late)
		AfterLimit(zerolog.Nop(), Life, time.Second, func() { calls <- struct{}{} }, nil)
		time.Sleep(time.Hour)
		if len(calls) != 1 || never.Err() != nil {
			t.Errorf("%d limits called, want the one that was not stopped; a limit of 0 ended with %v", len(calls), never.Err())
		}
		end()
	})
}
