package version

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// run is what every request passes, of clients, of models and of ensembles: it records
// what becomes of the request if that is traced.
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
