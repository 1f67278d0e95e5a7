package models

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestGatesHoldRequestsUp shuts a gate twice and checks that it opens only after it has been opened
// twice.
func TestGatesHoldRequestsUp(t *testing.T) {
	g := &gates{shuts: make(map[string]*gate)}
	never := make(chan struct{})
	g.pass("m", never)
	g.open("m")
	g.shut("m")
	g.shut("m")
	g.pass("other", never)
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		g.pass("m", never)
	}()
	g.open("m")
	select {
	case <-passed:
		t.Fatal("the request has passed a gate that was opened for one of two reasons")
	case <-time.After(10 * time.Millisecond):
	}
	g.open("m")
	testkit.Eventually(t, time.Minute, func() bool {
		select {
		case <-passed:
			return true
		default:
			return false
		}
	})
	g.shut("m")
	ended := make(chan struct{})
	close(ended)
	g.pass("m", ended)
	g.openAll()
	g.pass("m", never)
	g.shut("m") // openAll has run: shut has no effect
	g.pass("m", never)
}

// TestSavesAsksInEnglish checks the singular and plural of the log line that asks the user to save
// again.
func TestSavesAsksInEnglish(t *testing.T) {
	for times, want := range map[int]string{1: "save it again", 2: "save it 2 times more, a second apart"} {
		if got := saves(times); got != want {
			t.Errorf("%d: got %q, want %q", times, got, want)
		}
	}
}
