package scheduler

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Scheduler executes the requests of one version of a model: a Batcher, a sequence batcher or an
// ensemble.
type Scheduler interface {
	infer.Handler
	infer.Submitter
	// Begin is Submit. The Awaiter is nil if the request is queued or its instance has none.
	Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error)
	backend.Events
	// Stop rejects new requests from now on, and returns when those in flight have ended or ctx
	// has.
	Stop(ctx context.Context) error
	// Drain returns when nothing is in flight or ctx has ended. It rejects nothing, as requests in
	// flight elsewhere may send more.
	Drain(ctx context.Context) error
	// InFlight returns how many requests are in flight.
	InFlight() int
	// Retire gives an instance no new work from now on, whatever its Events report later. Drained
	// is called once, from any goroutine and with nothing locked, when the instance has no work;
	// this may be before Retire returns. A lost instance has no work. Answered reports that no
	// request of the instance waits for a response, although the instance may not have returned
	// from the last one yet.
	Retire(in backend.Instance, drained func()) (answered bool)
	// Forget drops the data about a retired instance that has no work and has ended. No event of it
	// follows.
	Forget(in backend.Instance)
}

// Reason says why a request failed, as the failure metric's label does.
type Reason uint8

// The reasons of failures.
const (
	Rejected       Reason = 0 // after acceptance: its time in the queue was over, or it would wait for itself
	Canceled       Reason = 1 // while it was queued
	BackendFailure Reason = 2
	OtherFailure   Reason = 3
)

// Execution is one execution of a batch. Times are ns of CLOCK_MONOTONIC.
type Execution struct {
	Requests []Timing
	Report   backend.Report
	// Padding is the number of requests in the batch without a client. They are not in Requests,
	// but each counts 1 in the size of the batch.
	Padding int64
}

// Timing describes one request of an execution.
type Timing struct {
	BatchSize int64 // 0 for models that do not batch
	Start     int64 // accepted
	Queued    int64 // given to the scheduler
}

// Observer counts requests. Its methods do not block and are called from any goroutine.
type Observer interface {
	// Pending changes the number of accepted requests that no instance has begun. It may be called
	// with a scheduler locked.
	Pending(change int)
	// Executed is called once for each batch that an instance has executed.
	Executed(*Execution)
	// Failed is called for each accepted request that failed outside an execution, and for a
	// BackendFailure. Requests that Infer or Submit rejects are not counted.
	Failed(reason Reason, start int64)
}

// Account adds the times of an execution to req.Costs, if set.
func Account(req *infer.Request, r *backend.Report) {
	if c := req.Costs; c != nil {
		c.Add(r.ComputeStart-r.Start, r.ComputeEnd-r.ComputeStart, r.End-r.ComputeEnd)
	}
}
