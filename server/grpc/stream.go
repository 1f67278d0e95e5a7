package grpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// errorKey makes the first error of a model end the stream with its status.
const errorKey = "triton_grpc_error"

// streamCost is what a stream takes while nothing is in flight on it: its
// goroutines, and what the transport has of replies that are on their way.
const streamCost = 96 << 10

// requestCost is what a request of a stream takes besides its message: the
// goroutine that waits for its answers, and what describes it.
const requestCost = 8 << 10

// inferStream serves one ModelStreamInfer.
//
// One goroutine reads, one writes, and each request has one that waits in Infer;
// the handler's own only waits, because a stream whose client does not read can
// be ended in no other way than by returning from the handler. The others follow
// in their own time: the reader and the writer at once, a request when its model
// lets it go. All of them count as active.
type inferStream struct {
	g        *FrontEnd
	stream   grpc.ServerStream
	ctx      context.Context // ends with the handler
	errors   bool            // as errorKey asks
	queue    *queue
	order    order // the reader's
	receiver message.Receiver
	overdue  message.Overdue
}

func (g *FrontEnd) modelStreamInfer(stream grpc.ServerStream) error {
	if err := g.account.Take(memory.Transport, streamCost); err != nil {
		return message.AsNoRoom(err)
	}
	defer g.account.Give(memory.Transport, streamCost)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer g.tellCancellation(stream.Context(), "ModelStreamInferHandler")()
	s := &inferStream{g: g, stream: stream, ctx: ctx}
	for _, v := range metadata.ValueFromIncomingContext(ctx, errorKey) {
		s.errors = v == "true"
	}
	conn := closerOf(ctx)
	s.receiver.Init(&g.receiving, stream, conn)
	s.overdue = message.Overdue{After: g.cfg.WriteTimeout, Conn: conn, Log: g.log}
	if err := message.ChooseCompression(ctx, g.cfg.Compression, s.receiver.Compression()); err != nil {
		return err
	}
	forwarded, refusal := g.forwarded(ctx)
	s.queue = newQueue(queueLimits{
		requests: g.cfg.MaxStreamRequests, responses: g.cfg.MaxStreamResponses,
		bytes: g.cfg.MaxStreamBytes, stall: g.cfg.StreamStallTimeout, errors: s.errors, log: g.log,
		window: callWindow, stopping: statusOf(errStopping),
	}, g.waiting)
	g.waiting.enter(s.queue)
	defer g.waiting.leave(s.queue)
	defer s.queue.close(errGone)
	written := make(chan error, 1) // sent once, by the writer
	s.spawn(func() error { return s.read(forwarded, refusal) }, s.queue.readDone)
	s.spawn(s.write, func(err error) { written <- err })
	select {
	case err := <-written:
		return err
	case <-s.queue.over:
		return s.queue.reason()
	case <-ctx.Done():
		return errGone
	}
}

// spawn runs f in a goroutine of its own, which is counted, and hands what it
// returns, or an error for its panic, to done.
func (s *inferStream) spawn(f func() error, done func(error)) {
	s.g.active.enter()
	boundary.Go(s.g.log, boundary.Request, func() {
		defer s.g.active.leave()
		done(s.g.protect(f))
	}, nil)
}

// read takes requests until the client has no more, and starts them. forwarded
// and refusal, which come with the stream, are for each of them.
func (s *inferStream) read(forwarded []infer.Parameter, refusal error) error {
	defer s.receiver.Close()
	for {
		if err := s.queue.admit(); err != nil {
			return err
		}
		c := message.NewCall(s.g.account)
		c.Forwarded, c.Refusal = forwarded, refusal
		err := s.g.protect(func() error { return c.Receive(&s.receiver, s.g.allocate) })
		var full *message.NoRoom
		switch {
		case err == io.EOF:
			c.Release()
			return nil
		case errors.As(err, &full):
			// Only this request is refused: the stream goes on after its message.
			if err := s.receiver.SkipRest(); err != nil {
				c.Release()
				return err
			}
		case err != nil:
			c.Release()
			return err
		case s.g.isStopping():
			err = errStopping
		}
		s.receiver.Rest()
		s.start(c, err)
	}
}

// start looks a request up and runs it. It is refused with err if there is one.
func (s *inferStream) start(c *message.Call, err error) {
	origin := &origin{}
	origin.model, origin.version, origin.id = c.Asked()
	if err == nil {
		err = c.Charge(requestCost)
	}
	if err == nil {
		err = s.g.protect(func() (err error) {
			origin.target, err = c.Lookup(s.g.core)
			return err
		})
	}
	decoupled := origin.target != nil && origin.target.Info().Decoupled()
	turn := s.queue.begin(!decoupled)
	if err == nil {
		err = s.g.protect(func() error { return c.Build(s.g.allocate) })
	}
	if err != nil {
		c.Release()
		s.queue.add(turn, reply{origin: origin, refusal: err})
		s.queue.end(turn)
		return
	}
	origin.classes, origin.emptyFinal = c.Classes, c.EmptyFinal
	place := s.order.join()
	c.Request.Entered = place.leave
	s.spawn(func() error {
		defer c.Release()
		place.wait(s.ctx)
		return s.infer(c, turn, origin)
	}, func(err error) {
		if err != nil {
			s.queue.add(turn, reply{origin: origin, refusal: err})
		}
		place.leave()
		s.queue.end(turn)
	})
}

// infer runs one request. Its responses go to the queue as they come; an error
// means that it was refused.
func (s *inferStream) infer(c *message.Call, turn *turn, origin *origin) error {
	if turn != nil {
		return s.inferOne(c, turn, origin)
	}
	return server.InferOn(s.ctx, s.g.core, &origin.target, &c.Request, func(r *infer.Response) {
		if r.Empty && !origin.emptyFinal {
			r.Release()
			return
		}
		s.queue.add(turn, reply{origin: origin, response: r})
	})
}

// inferOne runs one request of a model that has one response. That is the last
// one here, whatever the model sends behind it.
func (s *inferStream) inferOne(c *message.Call, turn *turn, origin *origin) error {
	answered := false
	err := server.InferOn(s.ctx, s.g.core, &origin.target, &c.Request, func(r *infer.Response) {
		if answered || r.Empty {
			r.Release()
			return
		}
		answered = true
		r.Final = true
		s.queue.add(turn, reply{origin: origin, response: r})
	})
	if err == nil && !answered {
		err = infer.Errorf(infer.Internal, "expected a single response, got 0")
	}
	return err
}

// write sends what the queue has until there is no more to come.
func (s *inferStream) write() error {
	for {
		reply, err := s.queue.next(s.ctx, s.g.stopping)
		if reply == nil {
			return statusOf(err)
		}
		if s.errors && reply.response != nil && reply.response.Err != nil {
			defer reply.release()
			return statusOf(reply.response.Err)
		}
		if err := s.send(reply); err != nil {
			return err
		}
		s.queue.sent(reply)
	}
}

// send writes one reply. It returns when the transport has taken it, which is
// when what it was given before is nearly written.
func (s *inferStream) send(reply *reply) error {
	if reply.encoded != nil {
		reply.release() // its place in the window of its model
		if err := s.stream.SendMsg(&message.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(reply.encoded)}}); err != nil {
			return errGone
		}
		return nil
	}
	var a message.Answer
	var buffers mem.BufferSlice
	err := s.g.protect(func() (err error) {
		a = reply.answer()
		buffers, err = a.Encode(s.overdue)
		return err
	})
	if err != nil {
		a = reply.failed(err)
		if buffers, err = a.Encode(s.overdue); err != nil {
			return err
		}
	}
	if a.Response == nil {
		defer reply.release()
	}
	if err := s.stream.SendMsg(&message.Encoded{Buffers: buffers}); err != nil {
		return errGone
	}
	return nil
}
