package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit/transcript"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// TestGraphTranscripts plays testdata/graph. The first line of each case names models as NewWorld
// does, the others are steps of a world, "wait 5s", and "end", which ends all executions. An effect
// is a batch that an instance begins or takes ahead, a rejection, an error, or a new number of
// failures in the statistics, of drained instances, or of instances that had answered all their
// requests when they were retired.
func TestGraphTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/graph/*.txt", func(t *testing.T) func(string) []string {
		var effects func(step string) []string
		return func(line string) []string {
			word, rest, _ := strings.Cut(line, " ")
			if word == "models" {
				effects = observed(t, rest)
				return nil
			}
			return effects(line)
		}
	})
}

// observed creates a world. The result performs a step and returns its effects.
func observed(t *testing.T, models string) func(string) []string {
	w := newWorld(t, models)
	before := w.situation()
	return func(step string) (effects []string) {
		if step == "end" {
			w.finish()
			time.Sleep(2 * waitgraph.Patience) // no check may run any more
			return nil
		}
		if text, waits := strings.CutPrefix(step, "wait "); waits {
			duration, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(duration)
		} else {
			_ = w.step(step)
		}
		synctest.Wait()
		now := w.situation()
		for _, fact := range now {
			if !slices.Contains(before, fact) {
				effects = append(effects, fact)
			}
		}
		before = now
		return effects
	}
}
