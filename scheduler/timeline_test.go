package scheduler_test

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
)

// timedInstance is an instance that records when it gets which batch and executes each for a fixed
// time.
type timedInstance struct {
	name     string
	label    string // before the ids of its batches
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

// wait waits until the time at which a step of a transcript happens, such as 10ms.
func (t *timeline) wait(tb testing.TB, at, step string) {
	tb.Helper()
	after, err := time.ParseDuration(at)
	if err != nil {
		tb.Fatalf("unknown step %q", step)
	}
	time.Sleep(time.Until(t.begun.Add(after)))
	synctest.Wait()
}

func (t *timeline) String() string { return strings.Join(t.all(), "; ") }

func (t *timedInstance) Name() string                { return t.name }
func (t *timedInstance) Ready(context.Context) error { return nil }

func (*timedInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (t *timedInstance) Execute(b *backend.Batch) {
	t.timeline.tell("%s%s", t.label, ids(b))
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
