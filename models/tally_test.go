package models

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
)

func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tally tally
		tally.Wait()
		ends := make(chan struct{})
		for range 2 {
			tally.Go(zerolog.Nop(), func() { <-ends }, nil)
		}
		waited := 0
		var mu sync.Mutex
		wait := func() {
			tally.Wait()
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
		tally.Add()
		go wait()
		want(2)
		tally.Done()
		want(3)
	})
}

// It grows from nothing while others wait, again and again.
func TestTallyGrowsFromNothing(*testing.T) {
	var tally tally
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				tally.Go(zerolog.Nop(), func() {}, nil)
				tally.Wait()
			}
		})
	}
	all.Wait()
	tally.Wait()
}
