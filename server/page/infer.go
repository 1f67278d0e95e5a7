package page

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/page/form"
)

// extraFields are the fields of the form besides the inputs.
type extraFields struct {
	ID, Parameters, Sequence string
	Start, End               bool
}

// answer is the result of a request of the form.
type answer struct {
	Sent      bool          // otherwise the form was rejected
	Took      time.Duration // of a sent request
	Responses []form.Response
	More      int    // responses that are not shown
	Code      string // of an error without a response
	Error     string
}

// serveInfer executes the request of the form and shows the result beside the form.
func (p *Pages) serveInfer(w *http1.Reply, r *http1.Request, at route, fields sent, c *budget.Charge) {
	q := &modelRequest{name: at.model, version: at.version, extra: extraFields{
		ID: fields.text("id"), Parameters: fields.text("parameters"), Sequence: fields.text("sequence"),
		Start: fields.text("start") != "", End: fields.text("end") != "",
	}}
	found, err := p.core.Target(at.model, at.version)
	if err != nil {
		q.problem = infer.AsError(err).Message
		p.serveModel(w, r, q)
		return
	}
	q.fields = form.Fields(found.Info().Config)
	for i := range q.fields {
		number := strconv.Itoa(i)
		if fields.text("name."+number) != q.fields[i].Name {
			q.fields, q.problem = nil, "The model's inputs have changed since the form was shown: check the form again."
			p.serveModel(w, r, q)
			return
		}
		q.fields[i].Shape, q.fields[i].Values, q.fields[i].File = fields.text("shape."+number), fields.text("values."+number), fields["file."+number]
	}
	q.answer = p.infer(r, at, q, &found, c)
	p.serveModel(w, r, q)
}

// infer runs the request to its end.
func (p *Pages) infer(r *http1.Request, at route, q *modelRequest, found *models.Target, c *budget.Charge) *answer {
	refused := func(err error) *answer {
		e := infer.AsError(err)
		return &answer{Code: e.Code.String(), Error: e.Message}
	}
	req := &infer.Request{Model: at.model, Version: at.version, ID: q.extra.ID}
	var lent []infer.Memory // of inputs; released after a panic too
	defer func() {
		for _, m := range lent {
			m.Release()
		}
	}()
	room := &form.Room{
		Limit: p.cfg.MaxInputBytes,
		Tensor: func(t *infer.Tensor, n int) error {
			err := p.allocate.Tensor(t, n, c)
			if err == nil && t.Memory != nil {
				lent = append(lent, t.Memory)
			}
			return err
		},
		Charge: c,
	}
	for i := range q.fields {
		f := &q.fields[i]
		if f.Empty() && f.Optional {
			continue
		}
		t, err := f.Read(room)
		if err != nil {
			return refused(err)
		}
		req.Inputs = append(req.Inputs, t) // bound: the inputs of the config
	}
	if most := c.Limits().RequestID; int64(len(req.ID)) > most {
		return refused(infer.Errorf(infer.InvalidArg, "the id has %d bytes, but at most %d are allowed; --client-max-id-size changes the limit", len(req.ID), most))
	}
	if err := c.Take(budget.JSON, parsedBytes*int64(min(len(q.extra.Parameters), mostParameters))); err != nil {
		return refused(err)
	}
	if err := q.extra.apply(req); err != nil {
		return refused(err)
	}
	// The kept part of the answer, and the page, which may have a tensor twice in base64: as a
	// picture and as a file.
	if err := c.Take(budget.Replies, 4*form.MostKept); err != nil {
		return refused(err)
	}
	r.Watch() // a browser that disconnects ends the request
	defer r.Unwatch()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	collector := &form.Collector{Enough: cancel}
	began := time.Now()
	err := server.InferOn(ctx, p.core, found, req, collector.Take)
	a := &answer{Sent: true, Took: time.Since(began)}
	a.Responses, a.More = collector.Answer()
	if err != nil {
		e := infer.AsError(err)
		a.Code, a.Error = e.Code.String(), e.Message
	}
	return a
}

// apply adds id, parameters and sequence to a request.
func (e *extraFields) apply(req *infer.Request) error {
	if text := strings.TrimSpace(e.Sequence); text != "" {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			req.Correlation.Number = n
		} else {
			req.Correlation.Text = text
		}
	}
	if e.Start {
		req.Flags |= infer.SequenceStart
	}
	if e.End {
		req.Flags |= infer.SequenceEnd
	}
	if strings.TrimSpace(e.Parameters) != "" {
		var err error
		if req.Parameters, err = parameters(e.Parameters); err != nil {
			return err
		}
	}
	return req.Check()
}

const (
	// mostParameters bounds the text of the parameters, in bytes.
	mostParameters = 64 << 10
	// parsedBytes bounds the memory for each byte of it once it is parsed.
	parsedBytes = 64
)

// parameters parses a JSON object with texts, numbers and booleans.
func parameters(text string) ([]infer.Parameter, error) {
	if len(text) > mostParameters {
		return nil, infer.Errorf(infer.InvalidArg, "the parameters have %d bytes, at most %d are read", len(text), mostParameters)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	err := decoder.Decode(&object) // bound: mostParameters, charged by the caller
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("there is more behind the object")
	}
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArg, "the parameters are not a JSON object such as {\"key\": 1}: %v", err)
	}
	list := make([]infer.Parameter, 0, len(object)) // bound: mostParameters, charged by the caller
	for _, name := range slices.Sorted(maps.Keys(object)) {
		p := infer.Parameter{Name: name}
		switch v := object[name].(type) {
		case string:
			p.Kind, p.String = infer.StringParameter, v
		case bool:
			p.Kind, p.Bool = infer.BoolParameter, v
		case json.Number:
			if p.Int, err = v.Int64(); err == nil {
				p.Kind = infer.IntParameter
			} else if p.Double, err = v.Float64(); err == nil {
				p.Kind = infer.DoubleParameter
			} else {
				return nil, infer.Errorf(infer.InvalidArg, "parameter '%s': %s is not a number that a request can carry", name, v)
			}
		default:
			return nil, infer.Errorf(infer.InvalidArg, "parameter '%s': want a text, a number, true or false", name)
		}
		list = append(list, p)
	}
	return list, nil
}

func versionText(version int64) string { return strconv.FormatInt(version, 10) }
