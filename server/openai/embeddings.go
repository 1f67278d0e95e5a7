package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// embedding is one request for the vector of a text.
type embedding struct {
	inference
	base64 bool
}

// serveEmbeddings serves POST /v1/embeddings.
func (h *endpoints) serveEmbeddings(w *http1.Reply, r *http1.Request) error {
	q := &embedding{}
	q.h, q.charge.Account = h, h.bodies.Account
	defer q.release()
	since := h.traces.Moment()
	if err := h.whole(w, r, func(text []byte, _ *memory.Charge) error { return q.read(r, text) }); err != nil {
		return err
	}
	t := h.trace(&q.req, r, since)
	defer t.Finish()
	r.Watch()
	defer r.Unwatch()
	response, err := q.one(r.Context())
	if err != nil {
		return err
	}
	defer response.Release()
	text, err := q.text(response)
	if err != nil {
		return err
	}
	const bytesPerByte = 8 // of the vector's text: its numbers, and the reply
	if err := q.charge.Take(memory.JSON, bytesPerByte*int64(len(text))); err != nil {
		return err
	}
	b, err := q.append(text)
	if err != nil {
		return err
	}
	b = appendText(append(b, `,"index":0}],"model":`...), q.model)
	b = append(b, `,"usage":`...)
	if n, ok := q.count(response, "num_input_tokens"); ok {
		b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), n, 10)
		b = strconv.AppendInt(append(b, `,"total_tokens":`...), n, 10)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	t.Stamp(trace.HTTPSendStart)
	w.Send(http.StatusOK, append(b, '}'))
	t.Stamp(trace.HTTPSendEnd)
	return nil
}

func (q *embedding) read(r *http1.Request, text []byte) error {
	f, err := parseBody(&q.charge, r, text)
	if err != nil {
		return err
	}
	f.requiredText("model", &q.model)
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
	var user string
	f.optionalText("user", &user)
	f.nothingElse()
	if len(*f.faults) > 0 {
		return &invalid{*f.faults}
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
	raw := input.Raw()
	if err := q.charge.Take(memory.JSON, int64(2*len(raw))); err != nil {
		return err
	}
	request := append(append([]byte(`{"input": `), raw...), `, "pooling_params": {`...)
	if dimensions.set {
		request = append(strconv.AppendInt(append(request, `"dimensions": [`...), dimensions.i, 10), ']')
	}
	if err := q.addStrings(in, []jsontext.String{{Raw: append(request, '}', '}')}}); err != nil {
		return err
	}
	return q.addCounts()
}

// checkEmbedded wants a text or a list of tokens.
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

// append appends the reply up to its vector, which the model's text has as a list of
// numbers.
func (q *embedding) append(text []byte) ([]byte, error) {
	doc, err := new(jsontext.Scanner).Scan(&q.charge, text)
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "%v", err)
	}
	elements, err := doc.Root().Elements()
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "%v", err)
	}
	b := []byte(`{"object":"list","data":[{"object":"embedding","embedding":`)
	var packed []byte
	first := true
	if !q.base64 {
		b = append(b, '[')
	}
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		x, err := e.Float()
		if err != nil {
			return nil, infer.Errorf(infer.Internal, "%v", err)
		}
		if q.base64 {
			packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(float32(x)))
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, pythonFloat(x)...)
	}
	if !q.base64 {
		return append(b, ']'), nil
	}
	b = append(b, '"')
	return append(base64.StdEncoding.AppendEncode(b, packed), '"'), nil
}
