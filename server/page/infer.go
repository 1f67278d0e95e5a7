package page

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/page/form"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// extraFields are the fields of the form besides the inputs.
type extraFields struct {
	ID, Parameters, Sequence string
	Start, End               bool
}

// outcome is the result of a request of the form.
type outcome struct {
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
func (p *Pages) infer(r *http1.Request, at route, q *modelRequest, found *models.Target, c *budget.Charge) *outcome {
	refused := func(err error) *outcome {
		e := infer.AsError(err)
		return &outcome{Code: e.Code.String(), Error: e.Message}
	}
	req := &infer.Request{Model: at.model, Version: at.version, ID: q.extra.ID}
	var lent []infer.Memory // of inputs; released after a panic too
	defer func() {
		for _, m := range lent {
			m.Release()
		}
	}()
	memory := &form.TensorMemory{
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
		t, err := f.Read(memory)
		if err != nil {
			return refused(err)
		}
		req.Inputs = append(req.Inputs, t) // bound: the inputs of the config
	}
	if most := c.Limits().RequestID; int64(len(req.ID)) > most {
		return refused(infer.Errorf(infer.InvalidArg, "the id has %d bytes, but at most %d are allowed; --client-max-id-size changes the limit", len(req.ID), most))
	}
	if err := q.extra.apply(req, c); err != nil {
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
	a := &outcome{Sent: true, Took: time.Since(began)}
	a.Responses, a.More = collector.Answer()
	if err != nil {
		e := infer.AsError(err)
		a.Code, a.Error = e.Code.String(), e.Message
	}
	return a
}

// apply adds id, parameters and sequence to a request.
func (e *extraFields) apply(req *infer.Request, c *budget.Charge) error {
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
		if req.Parameters, err = parameters(e.Parameters, c); err != nil {
			return err
		}
	}
	return req.Check()
}

// mostParameters bounds the text of the parameters, in bytes.
const mostParameters = 64 << 10

// parameters parses a JSON object with texts, numbers and booleans.
func parameters(text string, c *budget.Charge) (list []infer.Parameter, err error) {
	if len(text) > mostParameters {
		return nil, infer.Errorf(infer.InvalidArg, "the parameters have %d bytes, at most %d are read", len(text), mostParameters)
	}
	const want = "the parameters are not a JSON object such as {\"key\": 1}"
	doc, err := new(jsontext.Scanner).Scan(c, []byte(text)) // bound: mostParameters
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArg, want+": %v", err)
	}
	if !doc.Root().IsObject() {
		return nil, infer.Errorf(infer.InvalidArg, want)
	}
	all := values.Parameters{Items: &values.ItemCharges{Charge: c}}
	var names server.Names
	for m := doc.Root().Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			return list, nil
		}
		if err := all.Add(name, value); err != nil {
			return nil, err
		}
		p, ok := values.ReadParameter(value, name.String()) // bound: charged by Add
		if !ok {
			return nil, infer.Errorf(infer.InvalidArg, "parameter '%s': want a text, a number, true or false", p.Name)
		}
		if names.Add(p.Name, len(list), func(i int) string { return list[i].Name }) {
			list = append(list, p) // bound: tallied
		}
	}
}

func versionText(version int64) string { return strconv.FormatInt(version, 10) }
