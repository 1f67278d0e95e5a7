package stacked

import (
	"errors"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

func one() *infer.Request { return request(ints("X", dims(1), 1)) }

func TestReportsCountMergingAsInputs(t *testing.T) {
	failure := errors.New("execute raised")
	for _, test := range []struct {
		name   string
		report backend.Report
		check  func(t *testing.T, b *batch, got backend.Report)
	}{
		{"times", backend.Report{Start: 1 << 62, ComputeStart: 1 << 62, ComputeEnd: 1 << 62, End: 1 << 62}, func(t *testing.T, _ *batch, got backend.Report) {
			if got.Start == 1<<62 || got.Start <= 0 || got.ComputeStart != 1<<62 {
				t.Errorf("merging does not count as making inputs: %+v", got)
			}
		}},
		{"a failure", backend.Report{Err: failure}, func(t *testing.T, _ *batch, got backend.Report) {
			if got.Err != failure || !got.Executed {
				t.Errorf("got %+v", got)
			}
		}},
		{"another round", backend.Report{Rescheduled: []*backend.Task{nil}}, func(t *testing.T, b *batch, got backend.Report) {
			if !slices.Equal(got.Rescheduled, b.Tasks) {
				t.Errorf("got %+v", got)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newFixture(t, "", nil)
			r.model.report = test.report
			b := r.run(one(), one())
			if len(b.reports) != 1 {
				t.Fatalf("Done was called %d times", len(b.reports))
			}
			test.check(t, b, b.reports[0])
			if len(test.report.Rescheduled) == 0 {
				r.model.open[0].Send(infer.ErrorResponse(failure))
			}
			r.release(b)
		})
	}
}

// TestRefusedBatchLeavesNothing checks that a batch that the instance refused leaves no memory
// behind and can be given to an instance again.
func TestRefusedBatchLeavesNothing(t *testing.T) {
	r := newFixture(t, "", nil)
	r.model.rejected = true
	large := func() *infer.Request {
		return request(infer.Tensor{Name: "X", DataType: infer.Uint8, Shape: dims(1, 8000), Data: make([]byte, 8000)})
	}
	b := r.run(large(), large())
	if len(b.reports) != 1 || !b.reports[0].Refused || b.reports[0].Start != 0 {
		t.Fatalf("reports: %+v", b.reports)
	}
	r.release(b)
	r.model.rejected = false
	r.in.Execute(&b.Batch)
	r.model.open[0].Send(&infer.Response{Final: true})
	for _, a := range b.tasks {
		if len(a.responses) != 1 {
			t.Errorf("got %d responses", len(a.responses))
		}
	}
	r.release(b)
}

// TestCancelTellsTheModelAfterTheLast checks that the model gets the cancellation when the last
// client leaves, not before.
func TestCancelTellsTheModelAfterTheLast(t *testing.T) {
	r := newFixture(t, "", nil)
	c := r.in.Capabilities().Canceller
	b := r.run(one(), one(), one())
	merged := r.model.open[0]
	done := merged.Context.Done()
	for i, a := range b.tasks {
		if merged.Context.Err() != nil || len(r.model.told) > 0 {
			t.Fatalf("the model is told after %d of 3", i)
		}
		a.cancel()
		c.Cancel(&a.Task)
	}
	<-done
	if merged.Context.Err() == nil || !slices.Equal(r.model.told, []*backend.Task{merged}) {
		t.Errorf("%v, told %v", merged.Context.Err(), r.model.told)
	}
	merged.Send(&infer.Response{Final: true})
	c.Cancel(b.Tasks[0]) // too late: the task is in no group
	r.release(b)
}

// TestCancelWhileMergingIsToldLater checks that a cancellation that comes while the inputs are
// copied reaches the model when the instance has the batch.
func TestCancelWhileMergingIsToldLater(t *testing.T) {
	r := newFixture(t, "", nil)
	c := r.in.Capabilities().Canceller
	s := r.in.(*instance)
	data := make([]byte, copyAside)
	large := func() *infer.Request {
		return request(infer.Tensor{Name: "X", DataType: infer.Uint8, Shape: dims(1, copyAside), Data: data})
	}
	b := r.batch(large(), large())
	begun, proceed := make(chan struct{}), make(chan struct{})
	s.allocate = func(n int) ([]byte, infer.Memory, error) {
		close(begun)
		<-proceed
		return r.ledger.allocate(n)
	}
	r.in.Execute(&b.Batch) // returns although there is no memory yet
	<-begun
	for _, a := range b.tasks {
		a.cancel()
		c.Cancel(&a.Task)
	}
	down := make(chan struct{})
	go func() {
		r.events.Lost(r.model, false)
		close(down)
	}()
	select {
	case <-down:
		t.Error("the scheduler learns of the loss before the batch has come back")
	default:
	}
	close(proceed)
	<-down
	if len(r.model.open) != 1 || !slices.Equal(r.model.told, r.model.open) {
		t.Fatalf("the model has %d tasks and was told of %d", len(r.model.open), len(r.model.told))
	}
	if !slices.Equal(r.sched.down, r.sched.up) {
		t.Error("another instance is down than was up")
	}
	r.model.open[0].Send(&infer.Response{Final: true})
	r.release(b)
}

// TestDoneIsQuietWhenAnswered checks that the batch's context is not cancelled when clients leave
// after the response.
func TestDoneIsQuietWhenAnswered(t *testing.T) {
	r := newFixture(t, "", nil)
	b := r.run(one(), one())
	done := r.model.open[0].Context.Done()
	r.model.open[0].Send(&infer.Response{Final: true})
	for _, a := range b.tasks {
		a.cancel()
	}
	select {
	case <-done:
		t.Error("the context of a batch that has been answered ends")
	default:
	}
	r.release(b)
}

// plain is an instance without optional capabilities.
type plain struct{ backend.Instance }

func (plain) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func TestInstanceHasTheCapabilitiesOfItsInnerInstance(t *testing.T) {
	r := newFixture(t, "", nil)
	if r.in.Name() != "m_0" || r.in.Ready(t.Context()) == nil {
		t.Errorf("name %q, ready %v", r.in.Name(), r.in.Ready(t.Context()))
	}
	if r.in.Capabilities().Pipeliner != nil {
		t.Error("it takes batches ahead, which nobody would withdraw")
	}
	if backend.Innermost(r.in) != backend.Instance(r.model) {
		t.Error("it does not say in front of what it stands")
	}
	r.events.Available(plain{})
	simple := r.sched.up[1]
	simple.Capabilities().Awaiter.Await(nil)
	simple.Capabilities().Canceller.Cancel(&backend.Task{})
	r.events.Forget(r.model)
	if r.events.of(r.model) == r.in {
		t.Error("it is remembered")
	}
}

// TestAloneIsNotTouched checks that a batch of one request is passed on unchanged.
func TestAloneIsNotTouched(t *testing.T) {
	r := newFixture(t, "", nil)
	b := r.run(one())
	if r.model.open[0] != b.Tasks[0] {
		t.Error("the instance got another task")
	}
	r.in.Capabilities().Canceller.Cancel(b.Tasks[0])
	if !slices.Equal(r.model.told, b.Tasks) {
		t.Error("the model was not told")
	}
}
