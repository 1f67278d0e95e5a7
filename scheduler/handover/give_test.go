package handover_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// breaking is an instance whose Execute panics.
type breaking struct{ *backendtest.Instance }

func (breaking) Execute(*backend.Batch) { panic("no instance today") }

// heard records the reports and responses of a batch.
type heard struct {
	reports  []backend.Report
	answered []string // the name of each task, with the text of its error
}

// batchOf returns a batch with one task per name. The Sender of a name that ends in "!" panics;
// with doneBreaks, Done panics.
func (h *heard) batchOf(doneBreaks bool, names ...string) *backend.Batch {
	b := &backend.Batch{Done: func(_ *backend.Batch, r backend.Report) {
		h.reports = append(h.reports, r)
		if doneBreaks {
			panic("no end today")
		}
	}}
	for _, name := range names {
		b.Tasks = append(b.Tasks, &backend.Task{Request: &infer.Request{ID: name}, Send: func(r *infer.Response) {
			text := name + " without an end"
			if r.Final {
				text = name
			}
			if r.Err != nil {
				text += ": " + r.Err.Message
			}
			h.answered = append(h.answered, text)
			if strings.HasSuffix(name, "!") {
				panic("no client today")
			}
		}})
	}
	return b
}

func TestGiveHandsTheBatchOver(t *testing.T) {
	in := backendtest.NewHeld("i")
	var h heard
	b := h.batchOf(false, "a", "b")
	handover.Give(zerolog.Nop(), in, b)
	if len(in.Batches) != 1 || in.Batches[0] != b || len(h.reports)+len(h.answered) != 0 {
		t.Errorf("the instance has %d batches, the batch heard %+v; want the batch, and nothing said of it", len(in.Batches), h)
	}
}

// TestGiveEndsTheBatchWhenExecutePanics checks that every task of the batch gets an error response,
// even if Done or a Sender panics too.
func TestGiveEndsTheBatchWhenExecutePanics(t *testing.T) {
	const text = "internal error"
	for name, test := range map[string]struct {
		doneBreaks bool
		tasks      string
		panics     uint64
	}{
		"one task":               {false, "a", 1},
		"several":                {false, "a b c", 1},
		"a Sender panics too":    {false, "a! b c", 2},
		"all Senders panic too":  {false, "a! b!", 3},
		"Done panics too":        {true, "a b", 2},
		"Done and Senders panic": {true, "a! b", 3},
	} {
		t.Run(name, func(t *testing.T) {
			var h heard
			before := testkit.Panics(panics.Scheduler)
			begin := backend.Now()
			handover.Give(zerolog.Nop(), breaking{}, h.batchOf(test.doneBreaks, strings.Fields(test.tasks)...))
			if got := testkit.Panics(panics.Scheduler) - before; got != test.panics {
				t.Errorf("%d panics were counted, want %d", got, test.panics)
			}
			if len(h.reports) != 1 {
				t.Fatalf("Done was called %d times, want once", len(h.reports))
			}
			r := h.reports[0]
			if r.Err == nil || infer.AsError(r.Err).Message != text || r.Executed || r.Refused || r.Start < begin || r.ComputeStart < r.Start || r.ComputeEnd < r.ComputeStart || r.End < r.ComputeEnd {
				t.Errorf("got the report %+v, want a failure with its times in order", r)
			}
			want := strings.Join(strings.Fields(test.tasks), ": "+text+", ") + ": " + text
			if got := strings.Join(h.answered, ", "); got != want {
				t.Errorf("answered: got %q, want %q", got, want)
			}
		})
	}
}

func TestGiveAllocatesNothing(t *testing.T) {
	in := backendtest.NewHeld("i")
	in.Batches = make([]*backend.Batch, 0, 1)
	var h heard
	b, log := h.batchOf(false, "a"), zerolog.Nop()
	n := testing.AllocsPerRun(100, func() {
		in.Batches = in.Batches[:0]
		handover.Give(log, in, b)
	})
	if n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
