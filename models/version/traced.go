package version

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// run executes every request, of clients, models and ensembles, and records traced ones.
func (v *Version) run(ctx context.Context, req *infer.Request, send infer.Sender, by func(context.Context, *infer.Request, infer.Sender) error) error {
	if req.Trace == nil {
		return v.execute(ctx, req, send, by)
	}
	req.Trace.Begin(v.info.Name, v.info.Version, req.ID, backend.Now())
	err := v.execute(ctx, req, func(r *infer.Response) {
		req.Responded(r)
		send(r)
	}, by)
	if err != nil {
		req.Trace.Refused()
	}
	return err
}
