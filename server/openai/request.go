package openai

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// generation is one request for text and its reply.
type generation struct {
	inference
	chat         bool
	stream       bool
	includeUsage bool
	wantLogprobs bool
	offset       int64 // characters of the tokens of earlier chunks
	id           string
	created      int64 // seconds since 1970
}

// sampling has a client's sampling parameters.
type sampling struct {
	maxTokens, completionTokens, minTokens, n, bestOf, seed number
	temperature, topP, frequencyPenalty, presencePenalty    number
	logprobs, topLogprobs                                   number
	ignoreEOS, echo, wantLogprobs                           bool
	ignoreEOSGiven, echoGiven                               bool
	stop                                                    []jsontext.String // parts of the body
	stopIsList                                              bool
}

// everywhere bounds a field that has no bounds.
var everywhere = math.Inf(1)

// parseBody checks that a body is a JSON object, also by its content type.
func parseBody(c *budget.Charge, r *http1.Request, text []byte) (*fields, error) {
	f := &fields{faults: &faults{}}
	kind, _ := r.Header("Content-Type")
	kind, _, _ = strings.Cut(strings.ToLower(kind), ";") // bound: a header
	kind = strings.TrimSpace(kind)
	isJSON := kind == "" || kind == typeJSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	noObject := func(input []byte) error {
		return &invalid{[]fault{{"model_attributes_type", nil, "Input should be a valid dictionary or object to extract fields from", input, nil}}}
	}
	switch {
	case len(text) == 0:
		return nil, &invalid{[]fault{{"missing", nil, "Field required", []byte("null"), nil}}}
	case !isJSON:
		return nil, noObject(appendText(nil, jsontext.Brief(text)))
	}
	doc, err := new(jsontext.Scanner).Scan(c, text)
	if refused := (*infer.Error)(nil); errors.As(err, &refused) {
		return nil, refused
	}
	if err != nil {
		at := "0"
		var wrong *jsontext.SyntaxError
		if errors.As(err, &wrong) {
			at = strconv.Itoa(wrong.Offset())
		}
		context := append(appendText([]byte(`{"error":`), err.Error()), '}') // bound: the scanner's text
		return nil, &invalid{[]fault{{"json_invalid", []string{at}, "JSON decode error", []byte("{}"), context}}}
	}
	if f.object = doc.Root(); !f.object.IsObject() {
		return nil, noObject(f.shown(f.object))
	}
	return f, nil
}

// read makes a request to a model from the body of r. Temporary values are charged to c. The caller
// releases the generation, after an error too.
func (g *generation) read(r *http1.Request, text []byte, c *budget.Charge) error {
	f, err := parseBody(c, r, text)
	if err != nil {
		return err
	}
	var s sampling
	g.model = f.name("model", f.requiredText)
	var prompt jsontext.Value
	if g.chat {
		if prompt, _ = f.required("messages"); prompt.Exists() {
			f.checkMessages(prompt)
		}
	} else {
		prompt, _ = f.required("prompt")
		f.checkPrompt(prompt)
	}
	g.readSampling(f, &s)
	options, hasOptions := f.field("stream_options")
	if hasOptions {
		if inner, ok := f.inside("stream_options", options); ok {
			inner.bool("include_usage", &g.includeUsage)
			inner.nothingElse()
		}
	}
	bias, _ := f.field("logit_bias")
	hasBias := bias.Exists() && !bias.IsNull()
	var tools toolUse
	var suffix jsontext.String
	if g.chat {
		tools.read(f)
		for _, name := range []string{"response_format", "functions", "function_call"} {
			f.field(name)
		}
	} else {
		f.optionalText("suffix", &suffix)
	}
	f.name("user", f.optionalText)
	f.nothingElse()
	if len(f.faults.list) > 0 {
		return &invalid{f.faults.list}
	}
	if g.found, err = g.h.target(g.model); err != nil {
		return err
	}
	g.info = g.found.Info()
	if g.chat {
		err = g.checkChat(&s, &tools, hasBias, hasOptions, prompt)
	} else {
		err = g.checkCompletion(&s, suffix.Len() > 0, hasBias, hasOptions, prompt)
	}
	if err != nil {
		return err
	}
	if g.chat {
		return g.addChat(r, prompt, &tools, &s, c)
	}
	line, err := prompt.Text()
	if err != nil {
		return err // cannot fail after checkCompletion
	}
	return addInputs(g, line, &s, c)
}

// readSampling reads the fields that completions and chats share, and those of one kind.
func (g *generation) readSampling(f *fields, s *sampling) {
	s.maxTokens = whole(int64(g.h.cfg.DefaultMaxTokens))
	unlimited := s.maxTokens
	f.int("max_tokens", &s.maxTokens, 0, everywhere)
	if !s.maxTokens.set {
		s.maxTokens = unlimited
	}
	f.int("min_tokens", &s.minTokens, 0, everywhere)
	s.ignoreEOSGiven = f.bool("ignore_eos", &s.ignoreEOS)
	s.temperature = number{set: true, whole: true, i: 1, f: 1}
	if g.chat {
		s.temperature = number{set: true, f: 0.7}
	}
	s.topP, s.frequencyPenalty, s.presencePenalty, s.n, s.bestOf = whole(1), whole(0), whole(0), whole(1), whole(1)
	f.float("temperature", &s.temperature, 0, 2)
	f.float("top_p", &s.topP, 0, 1)
	f.float("frequency_penalty", &s.frequencyPenalty, -2, 2)
	f.float("presence_penalty", &s.presencePenalty, -2, 2)
	f.int("seed", &s.seed, -everywhere, everywhere)
	f.int("n", &s.n, 1, 128)
	s.stop, s.stopIsList = f.stops("stop")
	f.bool("stream", &g.stream)
	if g.chat {
		f.int("max_completion_tokens", &s.completionTokens, 0, everywhere)
		if s.completionTokens.set {
			s.maxTokens = s.completionTokens
		}
		f.bool("logprobs", &s.wantLogprobs)
		f.int("top_logprobs", &s.topLogprobs, 0, 20)
		if s.wantLogprobs {
			s.logprobs = whole(1)
			if s.topLogprobs.set && s.topLogprobs.i > 0 {
				s.logprobs = s.topLogprobs
			}
		}
		return
	}
	f.int("best_of", &s.bestOf, 0, 20)
	s.echoGiven = f.bool("echo", &s.echo)
	f.int("logprobs", &s.logprobs, 0, 5)
	s.wantLogprobs = s.logprobs.set && s.logprobs.i > 0
	if !s.wantLogprobs {
		s.logprobs.set = false
	}
}

func (f *fields) checkPrompt(v jsontext.Value) {
	if !v.Exists() || v.IsArray() {
		return
	}
	if _, err := v.Text(); err != nil {
		f.wrong("prompt.str", v, "string_type", "Input should be a valid string")
		f.wrong("prompt.list[str]", v, "list_type", "Input should be a valid list")
	}
}

var (
	errOptions  = refuse("`stream_options` can only be used when `stream` is True")
	errLogprobs = refuse("logprobs are currently available only for the vLLM backend")
)

// isVLLM reports whether the model's backend is vllm, whatever the form of its requests.
func (g *generation) isVLLM() bool { return g.info.Config.GetBackend() == FormatVLLM }

func oneChoice(n number) error {
	if n.set && n.i > 1 {
		return refuse("Received n=%d, but only single choice (n=1) is currently supported", n.i)
	}
	return nil
}

// checkCompletion rejects unsupported fields of a completion, in Triton's order.
func (g *generation) checkCompletion(s *sampling, suffix, bias, options bool, prompt jsontext.Value) error {
	if suffix {
		return refuse("suffix is not currently supported")
	}
	if line, err := prompt.Text(); err == nil && line.Len() == 0 {
		return refuse("prompt must be non-empty")
	} else if err != nil {
		elements, _ := prompt.Elements()
		if _, any := elements.Next(); !any {
			return refuse("prompt must be non-empty")
		}
		return refuse("only single string input is supported")
	}
	if g.isVLLM() && s.bestOf.asked() {
		return refuse("best_of is no longer supported in vLLM backend, removed from vLLM V1 engine")
	}
	if err := oneChoice(s.n); err != nil {
		return err
	}
	switch {
	case s.bestOf.set && s.bestOf.i > 1:
		return refuse("Received best_of=%d, but only single choice (best_of=1) is currently supported", s.bestOf.i)
	case bias:
		return refuse("logit bias is not supported")
	case s.wantLogprobs && !g.isVLLM():
		return errLogprobs
	case options && !g.stream:
		return errOptions
	}
	return nil
}

// inference is one request to a model.
type inference struct {
	h      *endpoints
	model  string // as the client spelled it
	found  target
	info   *models.Info
	req    infer.Request
	charge budget.Charge
}

func (q *inference) release() {
	for i := range q.req.Inputs {
		q.req.Inputs[i].Release()
	}
	q.req.Inputs = nil
	q.charge.Settle()
}

// notText returns the error of a model that cannot take a prompt.
func (q *inference) notText(why string) error {
	return &refusal{status: http.StatusBadRequest, text: "Model '" + q.model + "' " + why, code: "model_not_supported"}
}
