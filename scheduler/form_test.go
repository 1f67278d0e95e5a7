package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// timedInstance is an instance that records when it gets which batch and executes each for a fixed
// time.
type timedInstance struct {
	name     string
	lasts    time.Duration
	timeline *timeline
}

// timeline records events in order: "<ms> <event>".
type timeline struct {
	begun time.Time
	mu    sync.Mutex
	lines []string
}

func (t *timeline) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Since(t.begun)
	t.lines = append(t.lines, fmt.Sprintf("%v ", float64(at.Microseconds())/1000)+fmt.Sprintf(format, args...))
}

func (t *timeline) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines
}

func (t *timeline) String() string { return strings.Join(t.all(), "; ") }

func (t *timedInstance) Name() string                { return t.name }
func (t *timedInstance) Ready(context.Context) error { return nil }

func (*timedInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (t *timedInstance) Execute(b *backend.Batch) {
	t.timeline.tell("%s", ids(b))
	time.AfterFunc(t.lasts, func() {
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			task.Send(&infer.Response{Final: true})
		}
	})
}

// ids returns the ids of a batch.
func ids(b *backend.Batch) string {
	var list []string
	for _, t := range b.Tasks {
		list = append(list, t.Request.ID)
	}
	return strings.Join(list, "+")
}

// TestTimeoutRunsSinceTheRequestWasMade checks that the timeout of a BLS request starts when the
// model made it. A clock that is ahead does not extend it.
func TestTimeoutRunsSinceTheRequestWasMade(t *testing.T) {
	const config = "max_batch_size: 1 dynamic_batching { default_queue_policy { default_timeout_microseconds: 20000 allow_timeout_override: true } }"
	for _, c := range []struct {
		name    string
		made    time.Duration // time before the request arrives
		timeout time.Duration
		want    string
	}{
		{"over before it comes", 10 * time.Microsecond, 5 * time.Microsecond, "0 r: Unavailable"},
		{"the policy's", 20 * time.Millisecond, 0, "0 r: Unavailable"},
		{"in time", 10 * time.Microsecond, 11 * time.Microsecond, "0 r"},
		{"made in the future", -time.Hour, 5 * time.Microsecond, "0 r"},
		{"a client's", 0, 5 * time.Microsecond, "0 r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := &timeline{begun: time.Now()}
				d := NewBatcher(BatcherConfig{Model: "m", Observer: &Counter{}, Batching: batching.NewRules(ParseConfig(t, config))})
				d.Available(&timedInstance{name: "0", lasts: time.Millisecond, timeline: told})
				req := &infer.Request{ID: "r", BatchSize: 1, TimeoutMicros: uint64(c.timeout.Microseconds())}
				if c.made != 0 {
					req.Made = backend.Now() - int64(c.made)
				}
				err := d.Submit(t.Context(), req, func(r *infer.Response) {
					if r.Err != nil {
						told.tell("r: %s", r.Err.Code)
					}
				})
				time.Sleep(time.Second)
				if got := told.String(); got != c.want || err != nil {
					t.Errorf("got %s, %v; want %s", got, err, c.want)
				}
			})
		})
	}
}
