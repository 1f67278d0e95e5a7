package grpc

import (
	"context"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
)

// modelInfer serves one inference with one answer.
func (g *FrontEnd) modelInfer(stream grpc.ServerStream) error {
	c := newCall(g.account)
	defer c.release()
	ctx := stream.Context()
	conn := closerOf(ctx)
	var receiver receiver
	receiver.init(&g.receiving, stream, conn)
	receiver.watch()
	defer receiver.close()
	if err := c.receiveOnly(&receiver, g.allocate); err != nil {
		return err
	}
	receiver.rest()
	if err := chooseCompression(ctx, g.cfg.Compression, receiver.compression()); err != nil {
		return err
	}
	target, err := c.lookup(g.core)
	if err != nil {
		return err
	}
	if target.Info().Decoupled() {
		return infer.Errorf(infer.Unsupported, "ModelInfer RPC doesn't support models with decoupled transaction policy")
	}
	c.forwarded, c.refusal = g.forwarded(ctx)
	if err := c.build(g.allocate); err != nil {
		return err
	}
	var one oneResponse
	defer g.tellCancellation(ctx, "ModelInferHandler")()
	err = server.InferOn(ctx, g.core, &target, &c.request, one.send)
	c.release()
	encoded, err := finish(c.classes, target, &one, overdue{after: g.cfg.WriteTimeout, conn: conn, log: g.log}, err)
	if err != nil {
		return err
	}
	return stream.SendMsg(encoded)
}

// tellCancellation has verbose logs say when a client cancels what a handler serves,
// in Triton's words, until the handler ends. The numbers there are always these.
func (g *FrontEnd) tellCancellation(ctx context.Context, handler string) (stop func() bool) {
	if zerolog.GlobalLevel() > zerolog.DebugLevel || g.log.GetLevel() > zerolog.DebugLevel {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, boundary.Guard(g.log, boundary.Request, func() {
		g.log.Debug().Msgf("Cancellation notification received for %s, rpc_ok=1, context 0, 0 step ISSUED", handler)
	}, nil))
}

// oneResponse keeps the one response that a call may have.
type oneResponse struct {
	response *infer.Response
	count    int
}

func (o *oneResponse) send(r *infer.Response) {
	switch {
	case r.Empty:
		r.Release()
		return
	case o.count == 0:
		o.response = r
	default:
		r.Release()
	}
	o.count++
}

// finish makes the answer of what came of a call.
func finish(wanted []wantedClasses, target models.Target, one *oneResponse, overdue overdue, err error) (*encodedMessage, error) {
	r := one.response
	encoded := false
	defer func() { // after a panic too
		if r != nil && !encoded {
			r.Release()
		}
	}()
	switch {
	case err != nil:
	case one.count != 1:
		err = infer.Errorf(infer.Internal, "expected a single response, got %d", one.count)
	case r.Err != nil:
		err = r.Err
	default:
		err = classify(r, wanted, target.Info())
	}
	var buffers mem.BufferSlice
	if err == nil {
		answer := answerOf(r)
		buffers, err = answer.encode(overdue)
	}
	encoded = err == nil
	if conn, ok := overdue.conn.(*connection); ok && err == nil {
		buffers, err = conn.sent.own(buffers)
	}
	if err != nil {
		return nil, err
	}
	return &encodedMessage{buffers: buffers}, nil
}

// classify replaces the outputs that are wanted as classes.
func classify(r *infer.Response, classes []wantedClasses, info *models.Info) error {
	for _, want := range classes {
		for i := range r.Outputs {
			out := &r.Outputs[i]
			if out.Name != want.output {
				continue
			}
			t, err := server.Classify(out, want.count, info.Config.GetMaxBatchSize() > 0, info.Labels[out.Name])
			if err != nil {
				return err
			}
			out.Release()
			*out = t
		}
	}
	return nil
}
