package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// embedding is a request for the vector of a text.
type embedding struct {
	inference
	base64 bool
}

// serveEmbeddings serves POST /v1/embeddings.
func (h *endpoints) serveEmbeddings(w *http1.Reply, r *http1.Request) error {
	q := &embedding{}
	q.h, q.charge = h, h.charge(r)
	defer q.release()
	since := h.parts.Traces.Moment()
	defer r.Unwatch()
	if err := h.whole(w, r, func(text []byte, c *budget.Charge) error { return q.read(r, text, c) }); err != nil {
		return err
	}
	t := h.trace(&q.req, r, since)
	defer t.Finish()
	return q.answer(w, r, q.whole)
}

// whole writes the reply.
func (q *embedding) whole(b *buffer, response *infer.Response, text []byte) {
	q.write(b, text)
	b.raw(`,"index":0}],"model":`)
	quote(b, q.model)
	b.raw(`,"usage":`)
	if n, ok := q.count(response, "num_input_tokens"); ok {
		b.raw(`{"prompt_tokens":`)
		b.int(n)
		b.raw(`,"total_tokens":`)
		b.int(n)
		b.raw("}")
	} else {
		b.raw("null")
	}
	b.raw("}")
}

func (q *embedding) read(r *http1.Request, text []byte, c *budget.Charge) error {
	f, err := parseBody(c, r, text)
	if err != nil {
		return err
	}
	q.model = f.name("model", f.requiredText)
	input, there := f.required("input")
	if there {
		f.checkEmbedded(input)
	}
	var dimensions number
	f.int("dimensions", &dimensions, -everywhere, everywhere)
	form, _ := f.field("encoding_format")
	if form.Exists() {
		q.base64 = form.IsNull()
		if name, err := form.Text(); err == nil {
			q.base64 = name.Is("base64")
			if !q.base64 && !name.Is("float") {
				f.wrong("encoding_format", form, "literal_error", "Input should be 'float' or 'base64'")
			}
		} else if !form.IsNull() {
			f.wrong("encoding_format", form, "literal_error", "Input should be 'float' or 'base64'")
		}
	}
	f.name("user", f.optionalText)
	f.nothingElse()
	if len(f.faults.list) > 0 {
		return &invalid{f.faults.list}
	}
	if q.found, err = q.h.target(q.model); err != nil {
		return err
	}
	q.info = q.found.Info()
	in := q.input("embedding_request")
	if !q.vllm() {
		return refuse("TRT-LLM backend and Python backend do not support embedding requests")
	}
	if in == nil {
		return q.notText("has no input '" + q.h.cfg.tensor("embedding_request") + "' for embeddings")
	}
	q.req.Model, q.req.Version = q.info.Name, infer.LatestVersion
	request := buffer{charge: c, kind: budget.JSON}
	request.raw(`{"input": `)
	request.bytes(input.Raw())
	request.raw(`, "pooling_params": {`)
	if dimensions.set {
		request.raw(`"dimensions": [`)
		request.int(dimensions.i)
		request.raw("]")
	}
	if request.raw("}}"); request.err != nil {
		return request.err
	}
	if err := addTexts(&q.inference, in, jsontext.String{Raw: request.b}); err != nil {
		return err
	}
	return q.addCounts()
}

// checkEmbedded requires a text or a list of tokens.
func (f *fields) checkEmbedded(v jsontext.Value) {
	if s, err := v.Text(); err == nil {
		if s.Len() == 0 {
			f.wrongWith("input.constrained-str", v, "string_too_short", "String should have at least 1 character", []byte(`{"min_length":1}`))
		}
		return
	}
	elements, err := v.Elements()
	if err != nil {
		f.wrong("input.str", v, "string_type", "Input should be a valid string")
		f.wrong("input.list[int]", v, "list_type", "Input should be a valid list")
		return
	}
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		if _, err := e.Int(); err != nil {
			f.wrong("input.list[int]", v, "int_type", "Input should be a valid integer")
			return
		}
	}
}

// write writes the reply up to its vector, which is a list of numbers in the model's text.
func (q *embedding) write(b *buffer, text []byte) {
	doc, err := new(jsontext.Scanner).Scan(b.charge, text)
	if err != nil {
		b.fail(infer.AsError(err))
		return
	}
	elements, err := doc.Root().Elements()
	if err != nil {
		b.fail(infer.Errorf(infer.Internal, "%v", err))
		return
	}
	open, end := "[", "]"
	if q.base64 {
		open, end = `"`, `"`
	}
	b.raw(`{"object":"list","data":[{"object":"embedding","embedding":`, open)
	packed := make([]byte, 0, packedAtOnce)
	first := true
	for e, ok := elements.Next(); ok && b.err == nil; e, ok = elements.Next() {
		x, err := e.Float()
		if err != nil {
			b.fail(infer.Errorf(infer.Internal, "%v", err))
			return
		}
		if q.base64 {
			packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(float32(x))) // bound: packedAtOnce
			if len(packed) == packedAtOnce {
				b.base64(packed)
				packed = packed[:0]
			}
			continue
		}
		if !first {
			b.raw(",")
		}
		first = false
		b.raw(pythonFloat(x))
	}
	b.base64(packed)
	b.raw(end)
}

// packedAtOnce is the number of bytes of a vector that are encoded at once: a multiple of 4, the
// size of a number, and of 3, the input of base64.
const packedAtOnce = 768

func (w *buffer) base64(packed []byte) {
	if w.room(base64.StdEncoding.EncodedLen(len(packed))) {
		w.b = base64.StdEncoding.AppendEncode(w.b, packed) // bound: there is room
	}
}
