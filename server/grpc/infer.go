package grpc

import (
	"context"
	"slices"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// modelInfer serves ModelInfer.
func (g *FrontEnd) modelInfer(stream grpc.ServerStream) error {
	ctx := stream.Context()
	c := callOf(ctx)
	q := message.NewRequest(g.parts.Memory, c.holder())
	defer q.Release()
	client := c.client()
	var receiver message.Receiver
	receiver.Init(&g.receiving, stream, client.Conn)
	receiver.Watch()
	defer receiver.Close()
	waited := g.parts.Traces.Moment()
	if err := q.ReceiveOnly(&receiver, g.parts.Allocate); err != nil {
		return err
	}
	received := g.parts.Traces.Moment()
	receiver.Rest()
	if err := message.ChooseCompression(ctx, g.cfg.Compression, receiver.Compression()); err != nil {
		return err
	}
	target, err := q.Lookup(g.parts.Core)
	if err != nil {
		return err
	}
	if target.Info().Decoupled() {
		return infer.Errorf(infer.Unsupported, "ModelInfer RPC doesn't support models with decoupled transaction policy")
	}
	t := g.sample(ctx, q.Infer.Model, waited, received)
	defer t.Finish()
	q.Infer.Trace = t
	ctx = g.markReplayed(ctx)
	q.Forwarded, q.Refusal = g.forwarded(ctx)
	if err := q.Build(g.parts.Allocate, g.parts.Regions); err != nil {
		return err
	}
	var one server.Single
	defer g.tellCancellation(ctx, "ModelInferHandler")()
	err = server.InferOn(ctx, g.parts.Core, &target, &q.Infer, one.Take)
	q.ReleaseInputs()
	encoded, err := finish(ctx, q, target, &one, client, err)
	t.Stamp(trace.GRPCSendStart)
	defer t.Stamp(trace.GRPCSendEnd) // the transport sends an error after this function has returned
	if err != nil {
		return err
	}
	return stream.SendMsg(encoded)
}

// markReplayed returns the context for the requests of an RPC, which may belong to a recording.
func (g *FrontEnd) markReplayed(ctx context.Context) context.Context {
	if g.parts.IsReplayKey != nil && slices.ContainsFunc(metadata.ValueFromIncomingContext(ctx, server.ReplayHeader), g.parts.IsReplayKey) {
		return server.Replayed(ctx)
	}
	return ctx
}

// tellCancellation logs, at the verbose level and in Triton's words, that the client has cancelled
// the RPC, until the handler calls stop. The numbers in the text are constant.
func (g *FrontEnd) tellCancellation(ctx context.Context, handler string) (stop func() bool) {
	if zerolog.GlobalLevel() > zerolog.DebugLevel || g.log.GetLevel() > zerolog.DebugLevel {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, panics.Guard(g.log, panics.Request, func() {
		g.log.Debug().Msgf("Cancellation notification received for %s, rpc_ok=1, context 0, 0 step ISSUED", handler)
	}, nil))
}

// finish encodes the reply to a request, or returns the error that it has failed with.
func finish(ctx context.Context, q *message.Request, target models.Target, one *server.Single, overdue message.Overdue, err error) (*message.Encoded, error) {
	r := one.First
	encoded := false
	defer func() { // after a panic too
		if r != nil && !encoded {
			r.Release()
		}
	}()
	switch {
	case err != nil:
	case one.Count != 1:
		err = infer.Errorf(infer.Internal, "expected a single response, got %d", one.Count)
	case r.Err != nil:
		err = r.Err
	default:
		err = q.Classify(r, target.Info())
		if err == nil && len(q.Places) > 0 {
			// A client that has given up may have reused its memory.
			if err = ctx.Err(); err == nil {
				err = message.Put(ctx, r, q.Places)
			}
		}
	}
	var buffers mem.BufferSlice
	if err == nil {
		reply := message.ReplyOf(r)
		buffers, err = reply.Encode(overdue)
	}
	encoded = err == nil
	if conn, ok := overdue.Conn.(*connection); ok && err == nil {
		buffers, err = conn.sent.own(buffers)
	}
	if err != nil {
		return nil, err
	}
	return &message.Encoded{Buffers: buffers}, nil
}
