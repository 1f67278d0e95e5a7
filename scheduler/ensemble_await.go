package scheduler

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Starter is a Scheduler that can tell which instance a request has been handed
// to.
type Starter interface {
	// Begin is Submit. The Awaiter is nil if the request waits or its instance is
	// none.
	Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error)
}

var _ Starter = (*Batcher)(nil)

// Begin implements Starter.
func (d *Batcher) Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	r := d.newRequest(ctx, req, send)
	in, err := d.begin(r)
	if err != nil {
		return nil, err
	}
	d.watch(r)
	a, _ := in.(backend.Awaiter)
	return a, nil
}

// account adds an execution up for whoever makes the request for one of theirs.
func account(req *infer.Request, r *backend.Report) {
	if c := req.Costs; c != nil {
		c.Add(r.ComputeStart-r.Start, r.ComputeEnd-r.ComputeStart, r.End-r.ComputeEnd)
	}
}
