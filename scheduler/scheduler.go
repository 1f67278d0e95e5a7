package scheduler

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Scheduler runs the requests of one version of a model. The Batcher is
// one; the sequence batcher and ensembles are others.
type Scheduler interface {
	infer.Handler
	infer.Submitter
	backend.Events
	// Stop refuses new requests from now on and returns when those in flight have
	// ended, or ctx has.
	Stop(ctx context.Context) error
	// Drain returns when nothing is in flight, or ctx has ended. It refuses nothing:
	// what is in flight elsewhere may send more.
	Drain(ctx context.Context) error
	// InFlight returns how many requests are in flight.
	InFlight() int
	// Retire gives an instance no new work from now on, whatever its Events say
	// later. Drained is called once, by any goroutine and with nothing locked, when
	// the instance has none: before Retire returns, if it has none already. An
	// instance that is lost meanwhile, or that was never up, has none. Answered says that
	// no request of the instance waits for a response, though the instance may not have
	// returned from the last one yet.
	Retire(in backend.Instance, drained func()) (answered bool)
	// Forget drops what is known of an instance that has been retired, has no work and
	// has ended: none of its Events follows.
	Forget(in backend.Instance)
}

// Starter is a Scheduler that can tell which instance a request has been handed
// to.
type Starter interface {
	// Begin is Submit. The Awaiter is nil if the request waits or its instance is
	// none.
	Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error)
}

// Reason says why a request failed, as the failure metric's label does.
type Reason uint8

// The reasons of failures.
const (
	Rejected       Reason = 0 // after it was accepted: its time in the queue was over, or it would wait for itself
	Canceled       Reason = 1 // while it waited
	BackendFailure Reason = 2
	OtherFailure   Reason = 3
)

// Execution is one execution of a batch. Times are ns of CLOCK_MONOTONIC.
type Execution struct {
	Requests []Timing
	Report   backend.Report
	// Padding counts requests of the batch without a client. They are not among
	// Requests, but the instance had them: each counts 1 in the batch's size.
	Padding int64
}

// Timing is one request of an execution.
type Timing struct {
	BatchSize int64 // 0 for models that do not batch
	Start     int64 // accepted
	Queued    int64 // given to the scheduler
}

// Observer counts what happens to requests. Its methods do not block and are
// called from any goroutine.
type Observer interface {
	// Pending changes the number of requests that have been accepted and that no
	// instance has begun. It may be called with a scheduler locked.
	Pending(change int)
	// Executed is called once for each batch that an instance has ended.
	Executed(*Execution)
	// Failed is called for each request that was accepted and failed outside an
	// execution, and for a BackendFailure. A request that Infer or Submit refuses, as
	// for a full queue, is not counted.
	Failed(reason Reason, start int64)
}

// Account adds the times of an execution to the costs of the request that this one was
// made for, if any are counted.
func Account(req *infer.Request, r *backend.Report) {
	if c := req.Costs; c != nil {
		c.Add(r.ComputeStart-r.Start, r.ComputeEnd-r.ComputeStart, r.End-r.ComputeEnd)
	}
}
