package handover

import (
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// Give gives a batch to an instance. An instance panics only before it has the batch; then the
// batch fails, and the instance continues with the next one.
func Give(log zerolog.Logger, in backend.Instance, b *backend.Batch) {
	for _, task := range b.Tasks {
		task.Request.Trace.Given()
	}
	err := panics.Run(log, panics.Scheduler, func() error { in.Execute(b); return nil })
	if err == nil {
		return
	}
	own, now := infer.AsError(err), backend.Now()
	panics.Guard(log, panics.Scheduler, func() {
		b.Done(b, backend.Report{Start: now, ComputeStart: now, ComputeEnd: now, End: now, Err: own})
	}, nil)()
	for _, task := range b.Tasks {
		panics.Guard(log, panics.Scheduler, func() { task.Send(infer.ErrorResponse(own)) }, nil)()
	}
}

// Returned records the outcome of a batch in the traces of its requests. A scheduler's Done calls
// it before anything else.
func Returned(b *backend.Batch, report *backend.Report) {
	for _, task := range b.Tasks {
		if task == nil { // padding without memory
			continue
		}
		switch t := task.Request.Trace; {
		case t == nil:
		case report.Refused:
			t.Returned()
		default:
			t.Executed(report.Start, report.ComputeStart, report.ComputeEnd, report.End)
		}
	}
}
