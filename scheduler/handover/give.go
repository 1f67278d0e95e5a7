package handover

import (
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
)

// Give gives an instance a batch. If the instance panics, which it does only before it
// has the batch, the batch has failed: its instance goes on with the next one.
func Give(log zerolog.Logger, in backend.Instance, b *backend.Batch) {
	err := boundary.Run(log, boundary.Scheduler, func() error { in.Execute(b); return nil })
	if err == nil {
		return
	}
	own, now := infer.AsError(err), backend.Now()
	boundary.Guard(log, boundary.Scheduler, func() {
		b.Done(b, backend.Report{Start: now, ComputeStart: now, ComputeEnd: now, End: now, Err: own})
	}, nil)()
	for _, task := range b.Tasks {
		boundary.Guard(log, boundary.Scheduler, func() { task.Send(infer.ErrorResponse(own)) }, nil)()
	}
}
