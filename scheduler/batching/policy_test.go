package batching_test

import (
	"math"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestShorterTimeoutIsTheDeadline checks that a request's own timeout counts only if the policy
// allows it and it is shorter, and that a deadline that overflows is no deadline.
func TestShorterTimeoutIsTheDeadline(t *testing.T) {
	const now = 1_000_000
	for _, c := range []struct {
		name        string
		micros, own uint64
		override    bool
		now, want   int64
	}{
		{"no timeout", 0, 0, true, now, 0},
		{"the policy's", 5, 0, true, now, now + 5000},
		{"the request's is shorter", 5, 3, true, now, now + 3000},
		{"the request's is longer", 5, 7, true, now, now + 5000},
		{"the request's is not asked for", 5, 3, false, now, now + 5000},
		{"the request's alone", 0, 3, true, now, 0},
		{"beyond any clock", math.MaxUint64, 0, true, math.MaxInt64 - 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := batching.NewPolicy(&kserve.ModelQueuePolicy{DefaultTimeoutMicroseconds: c.micros, AllowTimeoutOverride: c.override})
			if got := p.DeadlineOf(&infer.Request{TimeoutMicros: c.own}, c.now); got != c.want {
				t.Errorf("got deadline %d, want %d", got, c.want)
			}
		})
	}
	if got := batching.Micros(math.MaxUint64); got != batching.Forever {
		t.Errorf("the longest is %s, want %s", got, batching.Forever)
	}
	if got := batching.Micros(7); got != 7*time.Microsecond {
		t.Errorf("7 µs are %s", got)
	}
}

// TestPrioritiesHaveTheirLevelsPolicy checks that each priority has the policy of its level, and an
// unknown priority that of the default level.
func TestPrioritiesHaveTheirLevelsPolicy(t *testing.T) {
	config := &kserve.ModelConfig{SchedulingChoice: &kserve.ModelConfig_DynamicBatching{DynamicBatching: &kserve.ModelDynamicBatching{
		PriorityLevels: 3, DefaultPriorityLevel: 2,
		DefaultQueuePolicy:  &kserve.ModelQueuePolicy{MaxQueueSize: 9},
		PriorityQueuePolicy: map[uint64]*kserve.ModelQueuePolicy{3: {MaxQueueSize: 1}},
	}}}
	rules := batching.NewRules(config)
	policies := rules.LevelPolicies()
	if len(policies) != 3 {
		t.Fatalf("there are %d levels, want 3", len(policies))
	}
	for priority, want := range map[uint64]struct{ level, size int }{0: {1, 9}, 1: {0, 9}, 2: {1, 9}, 3: {2, 1}, 4: {1, 9}} {
		level := rules.LevelOf(priority)
		if level != want.level || policies[level].Size != want.size {
			t.Errorf("priority %d: got level %d of %d, want level %d of %d", priority, level, policies[level].Size, want.level, want.size)
		}
	}
	if got := batching.NewRules(&kserve.ModelConfig{}); got != nil {
		t.Errorf("without dynamic_batching: got %+v, want none", got)
	}
	if list := (&batching.Rules{}).LevelPolicies(); len(list) != 1 || !list[0].Plain() {
		t.Errorf("without levels: got %+v, want one that asks for nothing", list)
	}
}
