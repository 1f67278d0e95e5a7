package grpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/grpc/message"
	"github.com/nereid-serving/nereid/server/grpc/replies"
)

// errorKey makes the first error of a model end the stream with its status.
const errorKey = "triton_grpc_error"

// streamCost is what a stream takes while nothing is in flight on it: its
// goroutines, and what the transport has of replies that are on their way.
const streamCost = 96 << 10

// requestCost is what a request of a stream takes besides its message: the
// goroutine that waits for its responses, and what describes it.
const requestCost = 8 << 10

// inferStream serves one ModelStreamInfer.
//
// One goroutine reads, one writes, and each request has a goroutine that waits in Infer;
// the handler's own only waits, because a stream whose client does not read can
// be ended in no other way than by returning from the handler. The others follow
// in their own time: the reader and the writer at once, a request when its model
// lets it go. All of them count as active.
type inferStream struct {
	g        *FrontEnd
	stream   grpc.ServerStream
	ctx      context.Context // ends with the handler
	errors   bool            // as errorKey asks
	holder   *budget.Holder  // its connection
	queue    *replies.Queue
	order    replies.Order // the reader's
	receiver message.Receiver
	overdue  message.Overdue
	traces   openTraces
}

func (g *FrontEnd) modelStreamInfer(stream grpc.ServerStream) error {
	call := callOf(stream.Context())
	charge := budget.Charge{Account: g.account, Holder: call.holder()}
	if err := charge.Take(budget.Transport, streamCost); err != nil {
		return message.AsNoRoom(err)
	}
	defer charge.Settle()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer g.tellCancellation(stream.Context(), "ModelStreamInferHandler")()
	s := &inferStream{g: g, stream: stream, ctx: ctx, holder: call.holder(), overdue: call.client()}
	for _, v := range metadata.ValueFromIncomingContext(ctx, errorKey) {
		s.errors = v == "true"
	}
	s.receiver.Init(&g.receiving, stream, s.overdue.Conn)
	if err := message.ChooseCompression(ctx, g.cfg.Compression, s.receiver.Compression()); err != nil {
		return err
	}
	forwarded, refusal := g.forwarded(ctx)
	s.queue = replies.NewQueue(replies.Limits{
		Requests: g.cfg.MaxStreamRequests, Responses: g.cfg.MaxStreamResponses,
		Bytes: g.cfg.MaxStreamBytes, Stall: g.cfg.StreamStallTimeout, Full: g.cfg.StreamFullTimeout, Errors: s.errors, Log: g.log,
		Window: int64(g.cfg.StreamWindowBytes), Stopping: statusOf(errStopping), Holder: s.holder,
	}, g.waiting)
	g.waiting.Enter(s.queue)
	defer g.waiting.Leave(s.queue)
	defer s.traces.close()
	defer s.queue.Close(replies.ErrGone)
	// Sent once, by the writer or for its panic. The handler may have returned by then: there is
	// room for the value, and nothing waits for it.
	written := make(chan error, 1)
	s.spawn(func() error { return s.read(forwarded, refusal) }, s.queue.ReadDone)
	s.spawn(s.write, func(err error) { written <- err })
	select {
	case err := <-written:
		return err
	case <-s.queue.Over:
		return s.queue.Reason()
	case <-ctx.Done():
		return replies.ErrGone
	}
}

// spawn runs f in a goroutine of its own, which is counted, and hands what it
// returns, or an error for its panic, to done.
func (s *inferStream) spawn(f func() error, done func(error)) {
	s.g.active.Add() // here, not in the goroutine: the handler, still counted itself, may end first
	panics.Go(s.g.log, panics.Request, func() {
		defer s.g.active.Done()
		done(s.g.protect(f))
	}, nil)
}

// read takes requests until the client has no more, and starts them. forwarded
// and refusal, which come with the stream, are for each of them.
func (s *inferStream) read(forwarded []infer.Parameter, refusal error) error {
	defer s.receiver.Close()
	for {
		if err := s.queue.Admit(); err != nil {
			return err
		}
		q := message.NewRequest(s.g.account, s.holder)
		q.Forwarded, q.Refusal = forwarded, refusal
		waited := s.g.traces.Moment()
		err := s.g.protect(func() error { return q.Receive(&s.receiver, s.g.allocate) })
		var full *message.NoRoom
		var refused *infer.Error
		switch {
		case err == io.EOF:
			q.Release()
			return nil
		case errors.As(err, &full), errors.As(err, &refused):
			// Only this request is refused: the stream goes on after its message.
			if err := s.receiver.SkipRest(); err != nil {
				q.Release()
				return err
			}
		case err != nil:
			s.receiver.Close() // whose charge is q's
			q.Release()
			return err
		case s.g.isStopping():
			err = errStopping
		}
		received := s.g.traces.Moment()
		s.receiver.Rest()
		s.start(q, err, waited, received)
	}
}

// start looks a request up and runs it. It is refused with err if there is one. The stream
// waited for it from waited to received, as sample has it.
func (s *inferStream) start(q *message.Request, err error, waited, received int64) {
	origin := &replies.Origin{}
	origin.Model, origin.Version, origin.ID = q.Asked()
	if err == nil {
		err = q.Charge(requestCost)
	}
	if err == nil {
		err = s.g.protect(func() (err error) {
			origin.Target, err = q.Lookup(s.g.core)
			return err
		})
	}
	decoupled := origin.Target != nil && origin.Target.Info().Decoupled()
	turn := s.queue.Begin(!decoupled)
	if err == nil {
		origin.Trace = s.g.sample(s.ctx, origin.Model, waited, received)
		s.traces.add(origin.Trace)
		q.Infer.Trace, q.Infer.Replayed = origin.Trace, s.g.isReplayed(s.ctx)
	}
	if err == nil {
		err = s.g.protect(func() error { return q.Build(s.g.allocate, s.g.regions) })
	}
	if err != nil {
		q.Release()
		s.add(turn, replies.Reply{Origin: origin, Refusal: err})
		s.queue.End(turn)
		s.traces.done(origin.Trace)
		return
	}
	origin.Classes, origin.Places, origin.EmptyFinal = q.Classes, q.Places, q.EmptyFinal
	// The place is taken here, by the goroutine that reads, so that places have the order of
	// the stream. The scheduler says Entered when the request has its place there; where it never
	// gets that far, the end of the request lets the next one go.
	place := s.order.Join()
	q.Infer.Entered = place.Leave
	s.spawn(func() error {
		defer q.Release()
		place.Wait(s.ctx)
		return s.infer(q, turn, origin)
	}, func(err error) {
		if err != nil {
			s.add(turn, replies.Reply{Origin: origin, Refusal: err})
		}
		place.Leave()
		s.queue.End(turn)
		s.traces.done(origin.Trace)
	})
}

// add gives the queue a reply.
func (s *inferStream) add(turn *replies.Turn, r replies.Reply) {
	s.traces.add(r.Origin.Trace)
	s.queue.Add(turn, r)
}

// infer runs one request. Its responses go to the queue as they come, from the goroutines
// that hand them up; an error means that it was refused.
func (s *inferStream) infer(q *message.Request, turn *replies.Turn, origin *replies.Origin) error {
	if turn != nil {
		return s.inferOne(q, turn, origin)
	}
	return server.InferOn(s.ctx, s.g.core, &origin.Target, &q.Infer, func(r *infer.Response) {
		if r.Empty && !origin.EmptyFinal {
			r.Release()
			return
		}
		s.add(turn, replies.Reply{Origin: origin, Response: r})
	})
}

// inferOne runs one request of a model that has one response. That is the last
// one here, whatever the model sends behind it.
func (s *inferStream) inferOne(q *message.Request, turn *replies.Turn, origin *replies.Origin) error {
	// Without a lock: the responses of one request come one after another, and before InferOn
	// returns.
	answered := false
	err := server.InferOn(s.ctx, s.g.core, &origin.Target, &q.Infer, func(r *infer.Response) {
		if answered || r.Empty {
			r.Release()
			return
		}
		answered = true
		r.Final = true
		s.add(turn, replies.Reply{Origin: origin, Response: r})
	})
	if err == nil && !answered {
		err = infer.Errorf(infer.Internal, "expected a single response, got 0")
	}
	return err
}

// write sends what the queue has until there is no more to come.
func (s *inferStream) write() error {
	for {
		reply, err := s.queue.Next(s.ctx, s.g.stopping)
		if reply == nil {
			return statusOf(err)
		}
		if s.errors && reply.Response != nil && reply.Response.Err != nil {
			defer reply.Release()
			return statusOf(reply.Response.Err)
		}
		t := reply.Origin.Trace
		t.Stamp(trace.GRPCSendStart)
		if err := s.send(reply); err != nil {
			return err
		}
		t.Stamp(trace.GRPCSendEnd)
		s.queue.Sent(reply)
		s.traces.done(t)
	}
}

// send writes one reply. It returns when the transport has taken it, which is
// when what it was given before is nearly written.
func (s *inferStream) send(reply *replies.Reply) error {
	if reply.Encoded != nil {
		reply.Release() // its place in the window of its model
		if err := s.stream.SendMsg(&message.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(reply.Encoded)}}); err != nil {
			return replies.ErrGone
		}
		return nil
	}
	var a message.Reply
	var buffers mem.BufferSlice
	err := s.g.protect(func() (err error) {
		a = reply.Message(s.ctx)
		buffers, err = a.Encode(s.overdue)
		return err
	})
	if err != nil {
		a = reply.Failed(err)
		if buffers, err = a.Encode(s.overdue); err != nil {
			return err
		}
	}
	if a.Response == nil {
		defer reply.Release()
	}
	if err := s.stream.SendMsg(&message.Encoded{Buffers: buffers}); err != nil {
		return replies.ErrGone
	}
	return nil
}
