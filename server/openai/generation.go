package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/generate"
)

const (
	// eventsAtOnce is how many bytes of events are put together before they are sent.
	eventsAtOnce = 32 << 10
	// textPerByte is about how many bytes of JSON a byte of text becomes.
	textPerByte = 2
)

// serveGeneration serves POST /v1/completions and /v1/chat/completions.
func (h *endpoints) serveGeneration(w *http1.Reply, r *http1.Request, chat bool) error {
	g := &generation{chat: chat, id: newID(), created: time.Now().Unix()}
	g.h, g.charge.Account = h, h.bodies.Account
	defer g.release()
	since := h.traces.Moment()
	if err := h.whole(w, r, func(text []byte, _ *memory.Charge) error { return g.read(r, text) }); err != nil {
		return err
	}
	t := h.trace(&g.req, r, since)
	defer t.Finish()
	r.Watch()
	defer r.Unwatch()
	if g.stream {
		return g.serveStream(w, r)
	}
	first, err := g.one(r.Context())
	if err != nil {
		return err
	}
	defer first.Release()
	text, err := g.text(first)
	if err != nil {
		return err
	}
	size := int64(len(text)) * textPerByte
	if err := g.charge.Take(memory.JSON, size); err != nil {
		return err
	}
	defer g.charge.Give(memory.JSON, size)
	logprobs, taken, err := g.logprobs(first)
	if err != nil {
		return err
	}
	defer g.charge.Give(memory.JSON, taken)
	whole := g.appendWhole(nil, first, text, logprobs)
	t.Stamp(trace.HTTPSendStart)
	w.Send(http.StatusOK, whole)
	t.Stamp(trace.HTTPSendEnd)
	return nil
}

// newID returns the id of a reply: a random UUID behind the prefix of Triton's front end.
func newID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it does not fail
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	digits := hex.EncodeToString(u[:])
	return "cmpl-" + digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// single collects the responses to a request for a whole text.
type single struct {
	first *infer.Response
	err   *infer.Error // of any response
	count int
}

// take is an infer.Sender.
func (s *single) take(r *infer.Response) {
	s.count++
	if r.Err != nil && s.err == nil {
		s.err = r.Err
	}
	if s.first == nil {
		s.first = r
		return
	}
	r.Release()
}

// one executes a request that has one response, and perhaps the end of a stream behind it.
// The caller releases the response.
func (q *inference) one(ctx context.Context) (*infer.Response, error) {
	var s single
	whole := false
	defer func() { // after a panic too
		if !whole && s.first != nil {
			s.first.Release()
		}
	}()
	if err := server.InferOn(ctx, q.h.core, &q.found, &q.req, s.take); err != nil {
		return nil, err
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case s.count < 1 || s.count > 2:
		return nil, infer.Errorf(infer.Internal, "Unexpected number of responses: %d, expected 1 or 2.", s.count)
	}
	whole = true
	return s.first, nil
}

// serveStream replies with an event for each response, as they come. The head of the reply
// waits for the first of them, so an error in its place is an ordinary reply. The model
// waits for a client that does not read, once it has filled its window; a client that
// leaves cancels the request.
func (g *generation) serveStream(w *http1.Reply, r *http1.Request) error {
	responses := generate.Start(r.Context(), g.h.core, &g.found, &g.req, g.h.log)
	defer responses.Close() // after a panic too: until then the inputs are the model's
	s := stream{g: g, w: w}
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
	ended bool // a chunk has said why the text ends
	gone  bool // the client reads no more
	b     []byte
	space []*infer.Response

	counted                    bool // some response has counted tokens
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
		size := int64(len(text)) * textPerByte
		if err := s.g.charge.Take(memory.JSON, size); err != nil {
			s.flush()
			return err
		}
		logprobs, taken, err := s.g.logprobs(r)
		if err != nil {
			s.g.charge.Give(memory.JSON, size)
			s.flush()
			return err
		}
		s.b = s.g.appendChunk(s.b, text, logprobs, r.Final)
		s.g.charge.Give(memory.JSON, size+taken)
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

// begin begins the reply, if nothing has.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.g.req.Trace.Stamp(trace.HTTPSendStart)
	s.w.ContentType = typeEvents
	s.w.Begin(http.StatusOK)
	if s.g.chat {
		s.b = s.g.appendRole(s.b)
	}
}

func (s *stream) flush() {
	if len(s.b) > 0 && !s.gone {
		s.gone = s.w.Continue(s.b) != nil
	}
	s.b = s.b[:0]
	if cap(s.b) > 2*eventsAtOnce {
		s.b = nil
	}
}

// end writes what stands behind the last response.
func (s *stream) end() {
	s.begin()
	if !s.ended {
		s.b = s.g.appendChunk(s.b, nil, nil, true)
	}
	if s.g.includeUsage && s.counted {
		s.b = s.g.appendUsageChunk(s.b, s.promptTokens, s.outputTokens)
	}
	s.b = append(s.b, "data: [DONE]\n\n"...)
	s.flush()
}

// fail writes the event of an error, which is the last.
func (s *stream) fail(err error) {
	e := asRefusal(err)
	s.b = appendErrorObject(append(s.b, `data: {"error":`...), e.text, kindOf(e.status), "", e.code)
	s.b = append(s.b, "}\n\n"...)
	s.flush()
}

// appendWhole appends the reply to a request that is not streamed.
func (g *generation) appendWhole(b []byte, r *infer.Response, text, logprobs []byte) []byte {
	b = g.appendStart(b)
	if g.chat {
		b = append(b, `{"finish_reason":"stop","index":0,"message":{"content":`...)
		b = appendContent(b, text)
		b = append(b, `,"tool_calls":null,"role":"assistant","function_call":null},`...)
		b = append(appendLogprobs(b, logprobs), '}')
		b = g.appendRest(b, "chat.completion")
	} else {
		b = appendLogprobs(append(b, `{"finish_reason":"stop","index":0,`...), logprobs)
		b = append(appendContent(append(b, `,"text":`...), text), '}')
		b = g.appendRest(b, "text_completion")
	}
	in, counted := g.count(r, "num_input_tokens")
	out, also := g.count(r, "num_output_tokens")
	if !counted || !also {
		return append(b, "null}"...)
	}
	return append(appendUsage(b, in, out), '}')
}

// appendStart appends a body up to its first choice.
func (g *generation) appendStart(b []byte) []byte {
	b = append(append(b, `{"id":"`...), g.id...)
	return append(b, `","choices":[`...)
}

// appendRest appends what stands between the choices and the usage.
func (g *generation) appendRest(b []byte, object string) []byte {
	b = strconv.AppendInt(append(b, `],"created":`...), g.created, 10)
	b = appendText(append(b, `,"model":`...), g.model)
	b = append(append(b, `,"system_fingerprint":null,"object":"`...), object...)
	return append(b, `","usage":`...)
}

func appendUsage(b []byte, in, out int64) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), in, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), in+out, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), out, 10)
	return append(b, '}')
}

// appendChunk appends the event of a piece of the text. The last one says why it ends.
func (g *generation) appendChunk(b, text, logprobs []byte, last bool) []byte {
	reason := "null"
	if last {
		reason = `"stop"`
	}
	b = g.appendStart(append(b, "data: "...))
	if g.chat {
		b = appendContent(append(b, `{"delta":{"content":`...), text)
		b = appendLogprobs(append(b, `,"function_call":null,"role":null},`...), logprobs)
		b = append(b, `,"finish_reason":`...)
		b = append(append(b, reason...), `,"index":0}`...)
	} else {
		b = append(append(b, `{"finish_reason":`...), reason...)
		b = appendLogprobs(append(b, `,"index":0,`...), logprobs)
		b = appendContent(append(b, `,"text":`...), text)
		b = append(b, '}')
	}
	return append(g.appendRest(b, g.chunkObject()), "null}\n\n"...)
}

// appendRole appends the first event of a chat.
func (g *generation) appendRole(b []byte) []byte {
	b = g.appendStart(append(b, "data: "...))
	b = append(b, `{"delta":{"content":"","function_call":null,"role":"assistant"},"logprobs":null,"finish_reason":null,"index":0}`...)
	return append(g.appendRest(b, g.chunkObject()), "null}\n\n"...)
}

// appendUsageChunk appends the event that counts the tokens of the whole stream.
func (g *generation) appendUsageChunk(b []byte, in, out int64) []byte {
	b = g.appendRest(g.appendStart(append(b, "data: "...)), g.chunkObject())
	return append(appendUsage(b, in, out), "}\n\n"...)
}

func (g *generation) chunkObject() string {
	if g.chat {
		return "chat.completion.chunk"
	}
	return "text_completion"
}
