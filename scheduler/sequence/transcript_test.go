package sequence_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// TestTranscripts plays testdata. The first line of each case is the config, the others are steps
// of fixture.step. An effect is a batch that an instance begins, a response, a rejection, a drained
// instance, or a new number of sequences.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/*.txt", func(t *testing.T) func(string) []string {
		var seen *witness
		return func(line string) []string {
			if seen == nil {
				seen = newWitness(newFixture(t, parseConfig(t, line)))
				t.Cleanup(seen.leave)
				return nil
			}
			seen.step(line)
			synctest.Wait()
			return seen.effects()
		}
	})
}

// parseConfig parses "direct max_batch=2 delay=100ms" or "oldest candidates=4 preferred=2".
func parseConfig(t *testing.T, line string) sequence.Config {
	t.Helper()
	fields := strings.Fields(line)
	values := map[string]string{}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		values[name] = value
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(values[name])
		return n
	}
	delay, _ := time.ParseDuration(values["delay"])
	utilization, _ := strconv.ParseFloat(values["utilization"], 32)
	var config sequence.Config
	switch fields[0] {
	case "direct":
		config = direct(number("max_batch"), uint64(delay.Microseconds()), float32(utilization))
	case "oldest":
		var preferred []int32
		if n := number("preferred"); n > 0 {
			preferred = []int32{int32(n)}
		}
		config = oldest(number("max_batch"), int32(number("candidates")), uint64(delay.Microseconds()), preferred...)
	default:
		t.Fatalf("unknown strategy in %q", line)
	}
	config.HoldRequests, config.HoldBacklog = number("hold_requests"), number("hold_backlog")
	config.Batching.IterativeSequence = values["iterative"] != ""
	return config
}

// witness reports the changes in a fixture.
type witness struct {
	*fixture
	batches   map[string]*backend.Batch
	over      map[string]bool // requests that have ended
	drained   map[string]bool
	sequences int
}

func newWitness(c *fixture) *witness {
	return &witness{fixture: c, batches: map[string]*backend.Batch{}, over: map[string]bool{}, drained: map[string]bool{}}
}

// effects returns the changes since its last call.
func (w *witness) effects() (list []string) {
	sequences := len(w.Known())
	w.view.Lock()
	defer w.view.Unlock()
	for _, id := range slices.Sorted(maps.Keys(w.clients)) {
		if ended := ending(w.clients[id]); ended != "" && !w.over[id] {
			w.over[id] = true
			list = append(list, id+" "+ended)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.instances)) {
		in := w.instances[name]
		if in.batch != nil && in.batch != w.batches[name] {
			list = append(list, name+" executes "+requestsOf(in.batch))
		}
		if in.more {
			list = append(list, name+" executes two batches at once")
		}
		w.batches[name] = in.batch
		if w.fixture.drained[name] && !w.drained[name] {
			w.drained[name] = true
			list = append(list, name+" drained")
		}
	}
	if sequences != w.sequences {
		w.sequences = sequences
		list = append(list, fmt.Sprintf("sequences: %d", sequences))
	}
	return list
}

// ending returns the outcome of a request, or "" if it has not ended.
func ending(c *client) string {
	switch {
	case c.refused != nil:
		return "rejected: " + infer.AsError(c.refused).Status()
	case c.final == nil:
		return ""
	case c.final.Err != nil:
		return "failed: " + strings.TrimSuffix(c.final.Err.Status(), ": ")
	}
	return "answered"
}

// requestsOf lists the requests and the padding of a batch.
func requestsOf(b *backend.Batch) string {
	var list []string
	for _, task := range b.Tasks {
		if task.Request.Padding {
			list = append(list, ".")
		} else {
			list = append(list, task.Request.ID)
		}
	}
	return strings.Join(list, " ")
}

// direct returns a config with the Direct strategy.
func direct(maxBatch int, delay uint64, fill float32) sequence.Config {
	return sequence.Config{MaxBatch: maxBatch, Batching: &kserve.ModelSequenceBatching{
		StrategyChoice: &kserve.ModelSequenceBatching_Direct{Direct: &kserve.ModelSequenceBatching_StrategyDirect{
			MaxQueueDelayMicroseconds: delay, MinimumSlotUtilization: fill,
		}},
	}}
}

// oldest returns a config with the Oldest strategy.
func oldest(maxBatch int, candidates int32, delay uint64, preferred ...int32) sequence.Config {
	return sequence.Config{MaxBatch: maxBatch, Batching: &kserve.ModelSequenceBatching{
		StrategyChoice: &kserve.ModelSequenceBatching_Oldest{Oldest: &kserve.ModelSequenceBatching_StrategyOldest{
			MaxCandidateSequences: candidates, MaxQueueDelayMicroseconds: delay, PreferredBatchSize: preferred,
		}},
	}}
}
