package process_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

// TestDoorRefusesBatchesThatNoStubDecodes checks that a batch that a stub could not decode is an
// error for its clients and never reaches the stub.
func TestDoorRefusesBatchesThatNoStubDecodes(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	pid := m.pid()
	for _, change := range []func(*infer.Request){
		func(q *infer.Request) { q.ID = "\xed\xb0\x80" },
		func(q *infer.Request) { q.Correlation.Text = "\xff" },
		func(q *infer.Request) {
			q.Parameters = []infer.Parameter{{Name: "k", Kind: infer.StringParameter, String: "\xff"}}
		},
		func(q *infer.Request) { q.Inputs[0].Shape = make([]int64, 300) },
		func(q *infer.Request) { q.Inputs[0].Name = "\xff" },
	} {
		request := r.small()
		change(request)
		responses, report := m.infer(request)
		if responses[0].Err == nil || report.Err == nil || report.Executed {
			t.Errorf("got response %+v, report %+v, want an error of a batch that was not executed", responses[0], report)
		}
		m.wantGood()
	}
	if now := m.pid(); now != pid {
		t.Errorf("stub is %d, want the first one, %d", now, pid)
	}
}

// TestFullPoolIsNoBrokenChannel checks that a batch whose head or input has no room in a full pool
// is an error for its client only.
func TestFullPoolIsNoBrokenChannel(t *testing.T) {
	r := newFixtureIn(t, testkit.Python(t).Path, nil, shm.PoolConfig{Max: 4 << 20, IdleTrim: time.Hour}, nil)
	m := r.start("identity", infer.Uint8)
	pid := m.pid()
	m.wantGood()
	var held []*shm.Block
	for size := 1 << 20; size >= shm.PageSize; {
		block, err := r.pool.Alloc(size)
		if err != nil {
			size /= 2
			continue
		}
		held = append(held, block)
	}
	for range 3 {
		request := &infer.Request{ID: strings.Repeat("i", 40_000)}
		responses, report := m.infer(request)
		err := responses[0].Err
		if err == nil || err.Code != infer.Unavailable || !strings.Contains(err.Message, "EXECUTE in the memory for requests") || !errors.Is(report.Err, err) {
			t.Errorf("got error %v, report %+v, want the client told that there is no room", err, report)
		}
		m.wantGood()
		large := &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 8192}, nil)}}
		large.Inputs[0].Data = make([]byte, 8192) // not in the pool
		responses, _ = m.infer(large)
		err = responses[0].Err
		if err == nil || err.Code != infer.Unavailable || !strings.Contains(err.Message, "Failed to increase the shared memory pool size") {
			t.Errorf("got error %v, want the client told that the tensor has no room now", err)
		}
	}
	for _, block := range held {
		block.Release()
	}
	m.mustInfer(&infer.Request{ID: strings.Repeat("i", 40_000)}).Release()
	if now := m.pid(); now != pid || r.counts.of(&r.counts.lost) > 0 {
		t.Errorf("stub is %d after %d losses, want the first one, %d", now, r.counts.of(&r.counts.lost), pid)
	}
}

// TestBatchesThatCannotBeSent checks that the stack does not grow if each batch is refused by the
// door and Done executes the next one, as a scheduler does.
func TestBatchesThatCannotBeSent(t *testing.T) {
	const batches = 2000
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	in := m.instance()
	deepest, done, answered := 0, 0, make(chan struct{}, batches)
	var next func()
	next = func() {
		in.Execute(&backend.Batch{
			Tasks: []*backend.Task{{
				Context: context.Background(), Request: &infer.Request{ID: "\xff"},
				Send: func(*infer.Response) { answered <- struct{}{} },
			}},
			Done: func(_ *backend.Batch, report backend.Report) {
				deepest = max(deepest, runtime.Callers(0, make([]uintptr, 1000)))
				if done++; done < batches && report.Err != nil {
					next()
				}
			},
		})
	}
	next()
	for range batches {
		select {
		case <-answered:
		case <-time.After(patience):
			t.Fatalf("%d batches are done, want %d; log:\n%s", done, batches, r.log)
		}
	}
	if deepest > 100 {
		t.Errorf("%d calls are on the stack, want few", deepest)
	}
	m.wantGood()
}
