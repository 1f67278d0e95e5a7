package handover

import (
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// Give gives an instance a batch. If the instance panics, which it does only before it
// has the batch, the batch has failed: its instance goes on with the next one.
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

// Returned notes in the traces of a batch's requests what became of the batch. A
// scheduler's Done calls it before it does anything else with them.
func Returned(b *backend.Batch, report *backend.Report) {
	for _, task := range b.Tasks {
		if task == nil { // padding for which there was no memory
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
