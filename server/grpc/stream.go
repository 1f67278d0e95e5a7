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

// streamCost is the memory of a stream with nothing in flight: its goroutines, and the transport's
// queue of replies.
const streamCost = 96 << 10

// requestCost is the memory of a stream's request besides its message: its goroutine and the data
// about it.
const requestCost = 8 << 10

// inferStream serves one ModelStreamInfer.
//
// One goroutine reads, one writes, and each request has a goroutine that waits in Infer. The
// handler's goroutine only waits: returning from the handler is the only way to end a stream whose
// client does not read. Then the reader and the writer end at once, and each request when its
// model releases it. All of these goroutines count as active.
type inferStream struct {
	g        *FrontEnd
	stream   grpc.ServerStream
	ctx      context.Context // ends with the handler
	errors   bool            // the client has set errorKey
	holder   *budget.Holder  // the connection
	queue    *replies.Queue
	order    replies.Order // used by the reader only
	receiver message.Receiver
	overdue  message.Overdue
	traces   openTraces
}

func (g *FrontEnd) modelStreamInfer(stream grpc.ServerStream) error {
	call := callOf(stream.Context())
	charge := budget.Charge{Account: g.parts.Memory, Holder: call.holder()}
	if err := charge.Take(budget.Transport, streamCost); err != nil {
		return message.AsOutOfMemory(err)
	}
	defer charge.Settle()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer g.tellCancellation(stream.Context(), "ModelStreamInferHandler")()
	s := &inferStream{g: g, stream: stream, ctx: g.markReplayed(ctx), holder: call.holder(), overdue: call.client()}
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
	// The writer, or the recovery of its panic, sends one value. The buffer lets it end after the
	// handler has returned.
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

// spawn runs f in a new goroutine, which counts as active, and passes its error, or the error for
// its panic, to done.
func (s *inferStream) spawn(f func() error, done func(error)) {
	s.g.active.Add() // not in the goroutine: the handler, which is still counted here, may end first
	panics.Go(s.g.log, panics.Request, func() {
		defer s.g.active.Done()
		done(s.g.protect(f))
	}, nil)
}

// read reads and starts requests until the client half-closes the stream. forwarded and refusal
// result from the stream's headers and apply to each request.
func (s *inferStream) read(forwarded []infer.Parameter, refusal error) error {
	defer s.receiver.Close()
	for {
		if err := s.queue.Admit(); err != nil {
			return err
		}
		q := message.NewRequest(s.g.parts.Memory, s.holder)
		q.Forwarded, q.Refusal = forwarded, refusal
		waited := s.g.parts.Traces.Moment()
		err := s.g.protect(func() error { return q.Receive(&s.receiver, s.g.parts.Allocate) })
		var full *message.OutOfMemory
		var refused *infer.Error
		switch {
		case err == io.EOF:
			q.Release()
			return nil
		case errors.As(err, &full), errors.As(err, &refused):
			// Only this request is rejected; the stream continues after its message.
			if err := s.receiver.SkipRest(); err != nil {
				q.Release()
				return err
			}
		case err != nil:
			s.receiver.Close() // before q, which has its charge
			q.Release()
			return err
		case s.g.isStopping():
			err = errStopping
		}
		received := s.g.parts.Traces.Moment()
		s.receiver.Rest()
		s.start(q, err, waited, received)
	}
}

// start finds the request's model and runs the request, or rejects it with err if that is not nil.
// waited and received are passed to sample.
func (s *inferStream) start(q *message.Request, err error, waited, received int64) {
	origin := &replies.Origin{}
	origin.Model, origin.Version, origin.ID = q.Asked()
	if err == nil {
		err = q.Charge(requestCost)
	}
	if err == nil {
		err = s.g.protect(func() (err error) {
			origin.Target, err = q.Lookup(s.g.parts.Core)
			return err
		})
	}
	decoupled := origin.Target != nil && origin.Target.Info().Decoupled()
	turn := s.queue.Begin(!decoupled)
	if err == nil {
		origin.Trace = s.g.sample(s.ctx, origin.Model, waited, received)
		s.traces.add(origin.Trace)
		q.Infer.Trace = origin.Trace
	}
	if err == nil {
		err = s.g.protect(func() error { return q.Build(s.g.parts.Allocate, s.g.parts.Regions) })
	}
	if err != nil {
		q.Release()
		s.add(turn, replies.Reply{Origin: origin, Refusal: err})
		s.queue.End(turn)
		s.traces.done(origin.Trace)
		return
	}
	origin.Classes, origin.Places, origin.EmptyFinal = q.Classes, q.Places, q.EmptyFinal
	// The reading goroutine calls Join, so that positions follow the order of the stream. The
	// scheduler calls Entered when it has queued the request. If the request never gets that far,
	// its end releases the next one.
	position := s.order.Join()
	q.Infer.Entered = position.Leave
	s.spawn(func() error {
		defer q.Release()
		position.Wait(s.ctx)
		return s.infer(q, turn, origin)
	}, func(err error) {
		if err != nil {
			s.add(turn, replies.Reply{Origin: origin, Refusal: err})
		}
		position.Leave()
		s.queue.End(turn)
		s.traces.done(origin.Trace)
	})
}

// add queues a reply.
func (s *inferStream) add(turn *replies.Turn, r replies.Reply) {
	s.traces.add(r.Origin.Trace)
	s.queue.Add(turn, r)
}

// infer runs one request. The goroutines that deliver its responses queue them. An error means that
// the request was rejected.
func (s *inferStream) infer(q *message.Request, turn *replies.Turn, origin *replies.Origin) error {
	if turn != nil {
		return s.inferOne(q, turn, origin)
	}
	return server.InferOn(s.ctx, s.g.parts.Core, &origin.Target, &q.Infer, func(r *infer.Response) {
		if r.Empty && !origin.EmptyFinal {
			r.Release()
			return
		}
		s.add(turn, replies.Reply{Origin: origin, Response: r})
	})
}

// inferOne runs one request of a model with one response per request. Further responses are
// dropped.
func (s *inferStream) inferOne(q *message.Request, turn *replies.Turn, origin *replies.Origin) error {
	// No lock: the responses to one request arrive one after another, and before InferOn returns.
	answered := false
	err := server.InferOn(s.ctx, s.g.parts.Core, &origin.Target, &q.Infer, func(r *infer.Response) {
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

// write sends queued replies until none will follow.
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

// send writes one reply. It returns when the transport has accepted it, which is when the reply
// before it is almost written.
func (s *inferStream) send(reply *replies.Reply) error {
	if reply.Encoded != nil {
		reply.Release() // its slot in the window of its model
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
