package rest

import (
	"net/http"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/generate"
)

const (
	typeEvents = "text/event-stream; charset=utf-8"
	// eventsAtOnce is how many bytes of events are collected before they are sent.
	eventsAtOnce = 32 << 10
)

// Generate serves POST …/generate and …/generate_stream, with the conventions of Infer.
func (h *Endpoints) Generate(w *http1.Reply, r *http1.Request, model string, version int64, stream bool) error {
	w.ContentType = typeJSON
	found, err := h.parts.Core.Target(model, version)
	if err != nil {
		return err
	}
	t := h.sample(model, r)
	defer t.Finish()
	q, err := h.generations.Read(r, found.Info(), model, version)
	t.Stamp(trace.HTTPReceiveEnd)
	if err != nil {
		return err
	}
	defer q.Release()
	q.Request.Trace = t
	r.Watch()
	defer r.Unwatch()
	if stream {
		return h.generateStream(w, r, found, q)
	}
	return h.generateOne(w, r, found, q)
}

// generateOne replies with the single response. As in Triton the first response determines the
// status: its error is 400.
func (h *Endpoints) generateOne(w *http1.Reply, r *http1.Request, found models.Target, q *generate.Request) error {
	var responses server.Single
	defer func() {
		if responses.First != nil {
			responses.First.Release()
		}
	}()
	if err := server.InferOn(r.Context(), h.parts.Core, &found, &q.Request, responses.Take); err != nil {
		return err
	}
	status := http.StatusOK
	if responses.First != nil && responses.First.Err != nil {
		status = http.StatusBadRequest
	}
	defer q.Request.Trace.Stamp(trace.HTTPSendEnd)
	q.Request.Trace.Stamp(trace.HTTPSendStart)
	h.reportLoad(w, r)
	switch {
	case responses.Count != 1:
		w.Send(status, q.AppendError(nil, errNotOne))
	case responses.First.Err != nil:
		w.Send(status, q.AppendError(nil, responses.First.Err))
	default:
		b, err := q.Append(nil, responses.First)
		if err != nil {
			return err
		}
		w.Send(status, b)
	}
	return nil
}

var errNotOne = &infer.Error{Code: infer.InvalidArg, Message: "generate expects model to produce exactly 1 response, " +
	"use generate stream for model that generates various number of responses"}

// generateStream replies with an event for each response as it comes. The model waits for a slow
// client once it has filled its window; a client that disconnects cancels the request.
func (h *Endpoints) generateStream(w *http1.Reply, r *http1.Request, found models.Target, q *generate.Request) error {
	responses := generate.Start(r.Context(), h.parts.Core, &found, &q.Request, h.log)
	defer responses.Close() // after a panic too: until then the inputs are the model's
	s := eventStream{h: h, w: w, r: r, q: q}
	for {
		list, last, err := responses.Next(s.space)
		s.send(list)
		if s.gone {
			responses.Cancel()
		}
		switch {
		case !last:
			continue
		case err != nil && !s.begun:
			return err // the request was rejected
		case err != nil:
			s.b = append(q.AppendError(append(s.b[:0], "data: "...), err), "\n\n"...)
			_ = w.Continue(s.b)
		case !s.begun:
			s.begin(http.StatusOK)
		}
		w.End()
		q.Request.Trace.Stamp(trace.HTTPSendEnd)
		return nil
	}
}

// eventStream writes the events of one reply.
type eventStream struct {
	h     *Endpoints
	w     *http1.Reply
	r     *http1.Request
	q     *generate.Request
	begun bool
	gone  bool   // the client has disconnected
	b     []byte // bound: q charges it
	space []*infer.Response
}

// send writes responses and releases them.
func (s *eventStream) send(list []*infer.Response) {
	defer func() {
		for _, r := range list { // after a panic
			if r != nil {
				r.Release()
			}
		}
		s.space = list
	}()
	s.b = s.b[:0]
	for i, r := range list {
		if !s.begun {
			status := http.StatusOK
			if r.Err != nil {
				status = http.StatusBadRequest
			}
			s.begin(status)
		}
		if !s.gone {
			s.b = s.q.AppendEvent(s.b, r)
		}
		list[i] = nil
		r.Release()
		if len(s.b) >= eventsAtOnce || i == len(list)-1 {
			s.gone = s.gone || s.w.Continue(s.b) != nil
			s.b = s.b[:0]
		}
	}
	if cap(s.b) > 2*eventsAtOnce {
		s.b = nil
		s.q.Sent()
	}
}

func (s *eventStream) begin(status int) {
	s.begun = true
	s.q.Request.Trace.Stamp(trace.HTTPSendStart)
	s.w.ContentType = typeEvents
	s.h.reportLoad(s.w, s.r)
	s.w.Begin(status)
}
