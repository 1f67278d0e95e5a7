package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/generate"
)

// eventsAtOnce is how many bytes of events are collected before they are sent.
const eventsAtOnce = 32 << 10

// serveGeneration serves POST /v1/completions and /v1/chat/completions.
func (h *endpoints) serveGeneration(w *http1.Reply, r *http1.Request, chat bool) error {
	g := &generation{chat: chat, id: newID(), created: time.Now().Unix()}
	g.h, g.charge = h, h.charge(r)
	defer g.release()
	since := h.parts.Traces.Moment()
	defer r.Unwatch()
	if err := h.whole(w, r, func(text []byte, c *budget.Charge) error { return g.read(r, text, c) }); err != nil {
		return err
	}
	t := h.trace(&g.req, r, since)
	defer t.Finish()
	if g.stream {
		return g.serveStream(w, r)
	}
	return g.answer(w, r, g.whole)
}

// answer executes a request that has one response, and replies with what write writes of it.
func (q *inference) answer(w *http1.Reply, r *http1.Request, write func(b *buffer, response *infer.Response, text []byte)) error {
	response, err := q.one(r.Context())
	if err != nil {
		return err
	}
	defer response.Release()
	text, err := q.text(response)
	if err != nil {
		return err
	}
	b := q.reply()
	if write(&b, response, text); b.err != nil {
		return b.err
	}
	q.req.Trace.Stamp(trace.HTTPSendStart)
	w.Send(http.StatusOK, b.b)
	q.req.Trace.Stamp(trace.HTTPSendEnd)
	return nil
}

// reply returns an empty reply, or a part of one, charged until the request is released.
func (q *inference) reply() buffer { return buffer{charge: &q.charge, kind: budget.Replies} }

// newID returns the id of a reply: a random UUID with the prefix of Triton's front end.
func newID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it does not fail
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	digits := hex.EncodeToString(u[:])
	return "cmpl-" + digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// one executes a request that has one response, which an end of the stream may follow. The caller
// releases the response.
func (q *inference) one(ctx context.Context) (*infer.Response, error) {
	var s server.Single
	whole := false
	defer func() { // after a panic too
		if !whole && s.First != nil {
			s.First.Release()
		}
	}()
	if err := server.InferOn(ctx, q.h.parts.Core, &q.found, &q.req, s.Take); err != nil {
		return nil, err
	}
	switch n := s.Count + s.Empty; {
	case s.Err != nil:
		return nil, s.Err
	case n < 1 || n > 2:
		return nil, infer.Errorf(infer.Internal, "Unexpected number of responses: %d, expected 1 or 2.", n)
	case s.First == nil:
		return &infer.Response{}, nil // the model has only ended its stream
	}
	whole = true
	return s.First, nil
}

// serveStream replies with an event for each response as it comes. The head of the reply waits for
// the first response, so an earlier error is an ordinary reply. The model waits for a slow client
// once it has filled its window; a client that disconnects cancels the request.
func (g *generation) serveStream(w *http1.Reply, r *http1.Request) error {
	responses := generate.Start(r.Context(), g.h.parts.Core, &g.found, &g.req, g.h.log)
	defer responses.Close() // after a panic too: until then the inputs are the model's
	s := stream{g: g, w: w, buffer: g.reply()}
	for {
		list, last, err := responses.Next(s.space)
		if wrong := s.send(list); wrong != nil {
			err, last = wrong, true
		}
		switch {
		case s.gone: // and the request is cancelled
		case !last:
			continue
		case err != nil && !s.begun:
			return err
		case err != nil:
			s.fail(err)
		default:
			s.end()
		}
		w.End()
		g.req.Trace.Stamp(trace.HTTPSendEnd)
		return nil
	}
}

// stream writes the events of one reply.
type stream struct {
	g     *generation
	w     *http1.Reply
	begun bool
	ended bool // a chunk has had the finish reason
	gone  bool // the client has disconnected
	buffer
	space []*infer.Response

	counted                    bool // a response has had token counts
	promptTokens, outputTokens int64
}

// send writes responses and releases them, up to one with an error.
func (s *stream) send(list []*infer.Response) (wrong error) {
	defer func() {
		for _, r := range list { // after an error or a panic
			if r != nil {
				r.Release()
			}
		}
		s.space = list
	}()
	for i, r := range list {
		if r.Err != nil {
			s.flush()
			return r.Err
		}
		text, err := s.g.text(r)
		if err != nil {
			s.flush()
			return err
		}
		s.count(r)
		s.begin()
		before := len(s.b)
		if s.g.chunk(&s.buffer, r, text, r.Final); s.err != nil {
			wrong = s.err
			s.b, s.err = s.b[:min(before, len(s.b))], nil
			s.flush()
			return wrong
		}
		s.ended = r.Final
		list[i] = nil
		r.Release()
		if len(s.b) >= eventsAtOnce {
			s.flush()
		}
	}
	s.flush()
	return nil
}

func (s *stream) count(r *infer.Response) {
	in, counted := s.g.count(r, "num_input_tokens")
	out, also := s.g.count(r, "num_output_tokens")
	if !counted || !also {
		return
	}
	if !s.counted {
		s.promptTokens = in
	}
	s.counted = true
	s.outputTokens += out
}

// begin begins the reply, once.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.g.req.Trace.Stamp(trace.HTTPSendStart)
	s.w.ContentType = typeEvents
	s.w.Begin(http.StatusOK)
	if s.g.chat {
		s.g.role(&s.buffer)
	}
}

func (s *stream) flush() {
	if len(s.b) > 0 && !s.gone {
		s.gone = s.w.Continue(s.b) != nil
	}
	s.b = s.b[:0]
	if cap(s.b) > 2*eventsAtOnce {
		s.free()
	}
}

// end writes the events after the last response.
func (s *stream) end() {
	s.begin()
	if !s.ended {
		s.g.chunk(&s.buffer, nil, nil, true)
	}
	if s.g.includeUsage && s.counted {
		s.g.usageChunk(&s.buffer, s.promptTokens, s.outputTokens)
	}
	s.raw("data: [DONE]\n\n")
	if s.err != nil {
		s.fail(s.err)
		return
	}
	s.flush()
}

// fail writes the event of an error, which is the last.
func (s *stream) fail(err error) {
	e := asRefusal(err)
	write := func(text string) {
		s.raw(`data: {"error":`)
		s.errorObject(text, kindOf(e.status), "", e.code)
		s.raw("}\n\n")
	}
	s.b, s.err = s.b[:0], nil
	if write(e.text); s.err != nil { // no memory for the long text of a model
		s.buffer = buffer{}
		write(infer.Cut(e.text, infer.MaxEcho))
	}
	s.flush()
}

// whole writes the reply to a request that is not streamed.
func (g *generation) whole(b *buffer, r *infer.Response, text []byte) {
	g.start(b)
	if g.chat {
		b.raw(`{"finish_reason":"stop","index":0,"message":{"content":`)
		quote(b, text)
		b.raw(`,"tool_calls":null,"role":"assistant","function_call":null},`)
		g.logprobs(b, r)
		b.raw("}")
		g.rest(b, "chat.completion")
	} else {
		b.raw(`{"finish_reason":"stop","index":0,`)
		g.logprobs(b, r)
		b.raw(`,"text":`)
		quote(b, text)
		b.raw("}")
		g.rest(b, "text_completion")
	}
	in, counted := g.count(r, "num_input_tokens")
	out, also := g.count(r, "num_output_tokens")
	if counted && also {
		b.usage(in, out)
	} else {
		b.raw("null")
	}
	b.raw("}")
}

// start writes a body up to its first choice.
func (g *generation) start(b *buffer) { b.raw(`{"id":"`, g.id, `","choices":[`) }

// rest writes the members between the choices and the usage.
func (g *generation) rest(b *buffer, object string) {
	b.raw(`],"created":`)
	b.int(g.created)
	b.raw(`,"model":`)
	quote(b, g.model)
	b.raw(`,"system_fingerprint":null,"object":"`, object, `","usage":`)
}

func (w *buffer) usage(in, out int64) {
	w.raw(`{"prompt_tokens":`)
	w.int(in)
	w.raw(`,"total_tokens":`)
	w.int(in + out)
	w.raw(`,"completion_tokens":`)
	w.int(out)
	w.raw("}")
}

// chunk writes the event of a piece of the text. The last one has the finish reason; r is nil if it
// has no response.
func (g *generation) chunk(b *buffer, r *infer.Response, text []byte, last bool) {
	reason := "null"
	if last {
		reason = `"stop"`
	}
	b.raw("data: ")
	g.start(b)
	if g.chat {
		b.raw(`{"delta":{"content":`)
		quote(b, text)
		b.raw(`,"function_call":null,"role":null},`)
		g.logprobs(b, r)
		b.raw(`,"finish_reason":`, reason, `,"index":0}`)
	} else {
		b.raw(`{"finish_reason":`, reason, `,"index":0,`)
		g.logprobs(b, r)
		b.raw(`,"text":`)
		quote(b, text)
		b.raw("}")
	}
	g.rest(b, g.chunkObject())
	b.raw("null}\n\n")
}

// role writes the first event of a chat.
func (g *generation) role(b *buffer) {
	b.raw("data: ")
	g.start(b)
	b.raw(`{"delta":{"content":"","function_call":null,"role":"assistant"},"logprobs":null,"finish_reason":null,"index":0}`)
	g.rest(b, g.chunkObject())
	b.raw("null}\n\n")
}

// usageChunk writes the event with the token counts of the whole stream.
func (g *generation) usageChunk(b *buffer, in, out int64) {
	b.raw("data: ")
	g.start(b)
	g.rest(b, g.chunkObject())
	b.usage(in, out)
	b.raw("}\n\n")
}

func (g *generation) chunkObject() string {
	if g.chat {
		return "chat.completion.chunk"
	}
	return "text_completion"
}
