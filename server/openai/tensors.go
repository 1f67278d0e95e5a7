package openai

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/generate"
)

// vllm reports whether requests to the model have vLLM's form.
func (q *inference) vllm() bool {
	if q.h.cfg.Format != "" {
		return q.h.cfg.Format == FormatVLLM
	}
	return q.info.Config.GetBackend() == FormatVLLM
}

// input returns the model's input for a role, or nil.
func (q *inference) input(role string) *kserve.ModelInput {
	return q.named(q.h.cfg.tensor(role))
}

func (q *inference) named(name string) *kserve.ModelInput {
	for _, in := range q.info.Config.GetInput() {
		if in.GetName() == name {
			return in
		}
	}
	return nil
}

// echoInput returns the input that excludes the prompt from the output.
func (q *inference) echoInput() *kserve.ModelInput {
	first := q.h.cfg.tensor("exclude_input_in_output")
	for _, in := range q.info.Config.GetInput() {
		if in.GetName() == first || in.GetName() == "sampling_param_exclude_input_from_output" {
			return in
		}
	}
	return nil
}

// addInputs adds those inputs of a prompt that the model has. It rejects a client's setting without
// an input. Temporary values are charged to c.
func addInputs[T element](g *generation, prompt T, s *sampling, c *budget.Charge) error {
	in := g.input("text_input")
	if in == nil {
		return g.notText("has no input '" + g.h.cfg.tensor("text_input") + "' for a prompt") // bound: the configuration
	}
	if err := addTexts(&g.inference, in, prompt); err != nil {
		return err
	}
	g.req.Model, g.req.Version = g.info.Name, infer.LatestVersion
	if err := g.addNumber(g.input("stream"), flag(g.stream)); err != nil {
		return err
	}
	var err error
	if g.vllm() {
		err = g.addVLLM(s, c)
	} else {
		err = g.addTensorRTLLM(s)
	}
	if err != nil {
		return err
	}
	return g.addCounts()
}

// addCounts requests the token counts.
func (q *inference) addCounts() error {
	for _, role := range []string{"return_num_input_tokens", "return_num_output_tokens"} {
		if err := q.addNumber(q.input(role), flag(true)); err != nil {
			return err
		}
	}
	return nil
}

func (g *generation) addVLLM(s *sampling, c *budget.Charge) error {
	if !s.echoGiven {
		s.echo = false
	}
	if err := g.addNumber(g.echoInput(), flag(!s.echo)); err != nil {
		return err
	}
	in := g.input("sampling_parameters")
	probabilities := g.input("return_logprobs")
	if g.wantLogprobs = s.wantLogprobs; g.wantLogprobs && (in == nil || probabilities == nil) {
		return g.notText("has no inputs '" + g.h.cfg.tensor("return_logprobs") + "' and '" + g.h.cfg.tensor("sampling_parameters") + "' for logprobs")
	}
	if err := g.addNumber(probabilities, flag(g.wantLogprobs)); err != nil {
		return err
	}
	if in == nil {
		return g.refuseAsked(s)
	}
	b := buffer{charge: c, kind: budget.JSON}
	if s.writeParameters(&b); b.err != nil {
		return b.err
	}
	return addTexts(&g.inference, in, jsontext.String{Raw: b.b})
}

func (g *generation) addTensorRTLLM(s *sampling) error {
	if err := g.refuseAsked(s); err != nil {
		return err
	}
	for _, one := range s.inputs() {
		if in := g.input(one.role); in != nil && one.value.set {
			if err := g.addNumber(in, *one.value); err != nil {
				return err
			}
		}
	}
	if in := g.input("stop_words"); in != nil && len(s.stop) > 0 {
		if err := addTexts(&g.inference, in, s.stop...); err != nil {
			return err
		}
	}
	if g.chat {
		return nil
	}
	return g.addNumber(g.echoInput(), flag(!s.echo))
}

type samplingInput struct {
	role  string
	value *number
}

// inputs are the sampling parameters that have inputs of their own in models without vLLM's form.
func (s *sampling) inputs() []samplingInput {
	return []samplingInput{{"max_tokens", &s.maxTokens}, {"top_p", &s.topP}, {"frequency_penalty", &s.frequencyPenalty},
		{"presence_penalty", &s.presencePenalty}, {"temperature", &s.temperature}, {"seed", &s.seed}}
}

// refuseAsked rejects settings of the client that would have no effect.
func (g *generation) refuseAsked(s *sampling) error {
	for _, one := range s.inputs() {
		if one.value.asked() && g.input(one.role) == nil {
			return g.notText("has no input '" + g.h.cfg.tensor(one.role) + "' for " + one.role)
		}
	}
	if len(s.stop) > 0 && g.input("stop_words") == nil {
		return g.notText("has no input '" + g.h.cfg.tensor("stop_words") + "' for stop")
	}
	return nil
}

func flag(on bool) number {
	if on {
		return whole(1)
	}
	return whole(0)
}

// writeParameters writes vLLM's sampling parameters in the spelling of Triton's front end.
func (s *sampling) writeParameters(b *buffer) {
	b.raw("{")
	next := func(name string) {
		if len(b.b) > 1 {
			b.raw(", ")
		}
		b.raw(`"`, name, `": `)
	}
	put := func(name string, n number) {
		switch {
		case !n.set:
			return
		case n.whole:
			next(name)
			b.int(n.i)
		default:
			next(name)
			b.raw(pythonFloat(n.f))
		}
	}
	put("frequency_penalty", s.frequencyPenalty)
	next("ignore_eos")
	b.raw(strconv.FormatBool(s.ignoreEOS))
	put("min_tokens", s.minTokens)
	put("n", s.n)
	put("presence_penalty", s.presencePenalty)
	put("seed", s.seed)
	if s.stopIsList || len(s.stop) > 0 {
		next("stop")
		if s.stopIsList {
			b.raw("[")
		}
		unescaped := buffer{charge: b.charge, kind: b.kind}
		for i, text := range s.stop {
			if i > 0 {
				b.raw(", ")
			}
			b.ascii(unescaped.plain(text))
		}
		b.fail(unescaped.err)
		unescaped.free()
		if s.stopIsList {
			b.raw("]")
		}
	}
	put("temperature", s.temperature)
	put("top_p", s.topP)
	put("max_tokens", s.maxTokens)
	put("logprobs", s.logprobs)
	b.raw("}")
}

// element is the source of an element of an input.
type element interface {
	Len() int
	AppendTo(b []byte) []byte
}

// plainText is a text without escapes.
type plainText string

// Len is the number of bytes that AppendTo appends.
func (s plainText) Len() int { return len(s) }

// AppendTo appends the text.
func (s plainText) AppendTo(b []byte) []byte { return append(b, s...) } // bound: the tensor's memory

// addTexts adds an input of texts.
func addTexts[T element](q *inference, in *kserve.ModelInput, list ...T) error {
	if in.GetDataType() != kserve.DataType_TYPE_STRING {
		return q.unfit(in)
	}
	size := 0
	for _, s := range list {
		size += 4 + s.Len()
	}
	t, err := q.tensor(in, len(list), size)
	if err != nil {
		return err
	}
	b := t.Data[:0]
	for _, s := range list {
		at := len(b)
		b = s.AppendTo(append(b, 0, 0, 0, 0)) // bound: the tensor's memory
		binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	return nil
}

// addNumber adds an input of one number, of the model's type. It does nothing if in is nil.
func (q *inference) addNumber(in *kserve.ModelInput, n number) error {
	if in == nil {
		return nil
	}
	d := infer.DataType(in.GetDataType())
	u := uint64(n.i)
	switch {
	case d == infer.FP32, d == infer.FP64:
		u = d.FloatBits(n.f)
	case d == infer.Bool, d.IsSigned(), d.IsUnsigned():
		signed, bits := d.IsSigned(), uint(8*d.Size())
		switch {
		case n.f != math.Trunc(n.f):
			return q.unfit(in)
		case !signed && n.i < 0, !signed && bits < 64 && n.i>>bits != 0, signed && n.i != n.i<<(64-bits)>>(64-bits):
			return &refusal{status: 500, text: "Python integer " + strconv.FormatInt(n.i, 10) + " out of bounds for " + pythonType(d)}
		}
	default:
		return q.unfit(in)
	}
	t, err := q.tensor(in, 1, d.Size())
	if err != nil {
		return err
	}
	infer.PutBits(t.Data[:d.Size()], u)
	return nil
}

func pythonType(d infer.DataType) string {
	b := []byte(d.String())
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b) // bound: the name of a type
}

// tensor adds an input of n elements and size bytes.
func (q *inference) tensor(in *kserve.ModelInput, n, size int) (*infer.Tensor, error) {
	t := infer.Tensor{Name: in.GetName(), DataType: infer.DataType(in.GetDataType())}
	var fits bool
	if t.Shape, fits = generate.Shape(q.info.Config.GetMaxBatchSize() > 0, in.GetDims(), int64(n)); !fits {
		return nil, q.unfit(in)
	}
	if err := q.h.parts.Allocate.Tensor(&t, size, &q.charge); err != nil {
		return nil, err
	}
	q.req.Inputs = append(q.req.Inputs, t) // bound: the configuration
	return &q.req.Inputs[len(q.req.Inputs)-1], nil
}

func (q *inference) unfit(in *kserve.ModelInput) error {
	return q.notText("has an input '" + in.GetName() + "' of another type or shape than the front end sends")
}

// output returns the response's output for a role, or nil.
func (q *inference) output(r *infer.Response, role string) *infer.Tensor {
	name := q.h.cfg.tensor(role)
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// text returns the text of a response, "" if it has none. It refers to the response.
func (q *inference) text(r *infer.Response) ([]byte, error) {
	out := q.output(r, "text_output")
	if out == nil {
		return nil, nil
	}
	scan := infer.ScanBytes(out.Data, 2)
	if out.DataType != infer.Bytes || scan.Count != 1 || scan.Rest != 0 {
		return nil, infer.Errorf(infer.Internal, "Expected to find 1 string in the output, found %d instead.", infer.ScanBytes(out.Data, math.MaxInt).Count)
	}
	return out.Data[4:], nil
}

// count returns the first element of an output with a token count.
func (q *inference) count(r *infer.Response, role string) (n int64, ok bool) {
	out := q.output(r, role)
	if out == nil || len(out.Data) < 4 {
		return 0, false
	}
	switch u := binary.LittleEndian.Uint32(out.Data); out.DataType {
	case infer.Uint32:
		return int64(u), true
	case infer.Int32:
		return int64(int32(u)), true
	}
	return 0, false
}
