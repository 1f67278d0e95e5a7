package panics_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

func TestWaitGroupWaitsForItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group panics.WaitGroup
		group.Wait()
		ends := make(chan struct{})
		for range 2 {
			group.Go(zerolog.Nop(), panics.Models, func() { <-ends }, nil)
		}
		waited := 0
		var mu sync.Mutex
		wait := func() {
			group.Wait()
			mu.Lock()
			waited++
			mu.Unlock()
		}
		want := func(n int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if waited != n {
				t.Errorf("%d have waited to the end, want %d", waited, n)
			}
		}
		go wait()
		go wait()
		ends <- struct{}{}
		want(0)
		ends <- struct{}{}
		want(2)
		group.Add()
		go wait()
		want(2)
		group.Done()
		want(3)
	})
}

// TestWaitGroupGrowsFromZero adds to the group repeatedly while other goroutines wait for it.
func TestWaitGroupGrowsFromZero(*testing.T) {
	var group panics.WaitGroup
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				group.Go(zerolog.Nop(), panics.Models, func() {}, nil)
				group.Wait()
			}
		})
	}
	all.Wait()
	group.Wait()
}

// TestNoneIsClosedAtZero checks that the channel returned by None is closed when the count reaches
// zero, and stays closed when the count grows again.
func TestNoneIsClosedAtZero(t *testing.T) {
	var group panics.WaitGroup
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	before := group.None()
	group.Add()
	group.Add()
	during := group.None()
	if n := group.Count(); n != 2 || !closed(before) || closed(during) {
		t.Errorf("counted %d, closed at zero %t, closed at two %t; want 2, true, false", n, closed(before), closed(during))
	}
	group.Done()
	group.Done()
	group.Add()
	if !closed(during) || closed(group.None()) {
		t.Errorf("closed after zero %t, closed at one %t; want true, false", closed(during), closed(group.None()))
	}
	group.Done()
}
