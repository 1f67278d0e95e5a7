package bls

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/ipc"
)

// TestAFollowerWatchesTheLastCallee checks that a Follower watches only the last process in a
// chain, leaves it when the chain changes, and allocates nothing while idle.
func TestAFollowerWatchesTheLastCallee(t *testing.T) {
	var chain [3]*bench
	for i := range chain {
		chain[i] = newBench(t, processtest.Backings["sealed"])
	}
	first, middle, last := chain[0].requests, chain[1].requests, chain[2].requests
	f := Follower{Of: first}
	watches := func(want *Requests) {
		t.Helper()
		if found := f.Look(); found || f.watched != want {
			t.Fatalf("found something: %t; watches the right process: %t", found, f.watched == want)
		}
	}
	watches(nil)
	first.callee.Store(middle)
	watches(middle)
	middle.callee.Store(last)
	watches(last)
	if !middle.Channel.Watch() {
		t.Error("the process in the middle is still watched")
	}
	if err := middle.Channel.Unwatch(func(ipc.Frame) error { return nil }); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { f.Look() }); n != 0 {
		t.Errorf("a look allocates %v times, want none", n)
	}
	first.callee.Store(nil)
	watches(nil)
	first.callee.Store(first) // a model that calls itself: the goroutine already spins there
	watches(nil)
	for _, b := range chain {
		b.settled()
	}
}
