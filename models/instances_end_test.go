package models_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// TestFailedNewInstancesLeaveTheBarrier checks that a new instance whose warm-up failed leaves
// nothing in the barrier, although it is lost and available once more just before it ends.
func TestFailedNewInstancesLeaveTheBarrier(t *testing.T) {
	g := newGrower(t, twoOfA+sampleOf("batch_size: 1", "IN", "INT32", "1", "zero_data: true"), nil)
	l := g.version()
	g.backend.answer["a_2"] = errors.New("cold")
	g.backend.ending = func(in *growingInstance) {
		in.model.events.Lost(in, false)
		in.model.events.Available(in)
		l.Barrier().Settle() // waits for a warm-up of the instance, if one has begun
	}
	if _, err := g.SetInstances(t.Context(), "m", "", 3); err == nil || infer.AsError(err).Message != "failed to run warmup sample 's': cold; " {
		t.Errorf("got %v", err)
	}
	g.backend.ending = nil
	delete(g.backend.answer, "a_2")
	if _, err := g.SetInstances(t.Context(), "m", "", 3); err != nil {
		t.Errorf("the next ones: %v", err)
	}
	g.want("in the end", "1: a_0 a_1 a_2")
	if n := l.Barrier().Known(); n != 3 {
		t.Errorf("the barrier knows %d instances, want 3", n)
	}
}

// TestShutdownWaitsForSurplusInstances shuts the server down after an exchange is decided but
// before its surplus instances have left, and checks that the shutdown waits until they have ended.
func TestShutdownWaitsForSurplusInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrower(t, twoOfA, nil)
		deciding, goOn := make(chan struct{}), make(chan struct{})
		g.backend.leaving = func(*growingInstance) {
			g.backend.leaving = nil
			close(deciding)
			<-goOn
		}
		g.wait.Go(func() {
			if _, err := g.SetInstances(t.Context(), "m", "", 1); err != nil {
				t.Error(err)
			}
		})
		<-deciding
		over := make(chan error, 1)
		go func() { over <- g.Shutdown(t.Context()) }()
		synctest.Wait()
		if len(over) > 0 {
			t.Error("the server does not wait for it")
		}
		close(goOn)
		if err := <-over; err != nil {
			t.Error(err)
		}
		if got := g.backend.models[0].left(); got != "a_1" {
			t.Errorf("when the server has exited, %q have ended", got)
		}
		g.wait.Wait()
	})
}

// TestLoadWaitsUntilExecuteReturns checks that a load that removes an instance waits for
// its end if the instance has sent its last response but has not returned from execute yet.
func TestLoadWaitsUntilExecuteReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrower(t, `instance_group [ { name: "a" count: 2 kind: KIND_CPU } ]`, nil)
		g.backend.returning = func() { time.Sleep(time.Second) }
		for range 2 {
			if _, err := g.send(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		g.write(`instance_group [ { name: "a" count: 1 kind: KIND_CPU } ]`)
		if err := g.Load(t.Context(), "m", "", nil); err != nil {
			t.Fatal(err)
		}
		if got := g.backend.models[0].left(); got != "a_1" {
			t.Errorf("when the load has returned, %q have ended, want a_1", got)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLoadWaitsForIdleInstances checks that a load that removes instances returns when the idle
// ones have ended, without waiting for the busy ones.
func TestLoadWaitsForIdleInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrower(t, `instance_group [ { name: "a" count: 4 kind: KIND_CPU } ]`, nil)
		end := g.long(2)
		g.backend.ending = func(*growingInstance) { time.Sleep(time.Second) } // takes a second to finalize
		g.write(`instance_group [ { name: "a" count: 1 kind: KIND_CPU } ]`)
		if err := g.Load(t.Context(), "m", "", nil); err != nil {
			t.Fatal(err)
		}
		// At most two of the three surplus instances are busy.
		if got := g.backend.models[0].left(); got == "" || got == "a_1 a_2 a_3" {
			t.Errorf("when the load has returned, %q have ended, want those that were idle", got)
		}
		end()
		g.wantEnded(g.backend.models[0], "a_1 a_2 a_3")
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		g.wait.Wait()
	})
}
