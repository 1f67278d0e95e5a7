package rest

import (
	"net/http"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/tracing"
)

// sample returns the trace of a request whose head has been read, or nil if it is not traced.
func (h *Endpoints) sample(model string, r *http1.Request) *trace.Trace {
	if !h.parts.Traces.On() {
		return nil
	}
	t := h.parts.Traces.Sample(model, false, r.Header)
	t.Stamp(trace.HTTPReceiveStart)
	return t
}

// writeTracedError is WriteError for a request that may be traced.
func writeTracedError(w *http1.Reply, t *trace.Trace, err error) {
	t.Stamp(trace.HTTPSendStart)
	WriteError(w, err)
	t.Stamp(trace.HTTPSendEnd)
}

// serveTraceSettings serves GET and POST of /v2/trace/setting and
// /v2/models/M/trace/setting.
func (h *Endpoints) serveTraceSettings(w *http1.Reply, r *http1.Request, t target) error {
	if t.model != "" {
		if _, err := h.parts.Core.Model(t.model, infer.LatestVersion); err != nil {
			return tracing.ErrModel(t.model)
		}
	}
	if r.Method == http.MethodPost {
		var change tracing.Change
		err := h.bodies.Small(r, func(text []byte, c *budget.Charge) error {
			doc, err := body.Parse(c, new(jsontext.Scanner), text)
			if err != nil {
				return err
			}
			return readTraceSettings(c, doc.Root(), &change)
		})
		if err == nil {
			err = h.parts.Traces.Change(t.model, change)
		}
		if err != nil {
			return err
		}
	}
	w.Send(http.StatusOK, appendTraceSettings(nil, h.parts.Traces.Settings(t.model)))
	return nil
}

// readTraceSettings reads a client's changes.
func readTraceSettings(charge *budget.Charge, v jsontext.Value, c *tracing.Change) error {
	if v.Member(tracing.KeyFile).Exists() {
		return tracing.ErrFile
	}
	if m := v.Member(tracing.KeyLevel); m.Exists() {
		if m.IsNull() {
			c.Level.Given, c.Level.Clear = true, true
		} else if err := readTraceLevels(charge, m, c); err != nil {
			return err
		}
	}
	for _, field := range [...]struct {
		key          string
		given, clear *bool
		read         func(text string) error
	}{
		{tracing.KeyRate, &c.Rate.Given, &c.Rate.Clear, c.ReadRate},
		{tracing.KeyCount, &c.Count.Given, &c.Count.Clear, func(text string) error { return c.ReadCount(text, "") }},
		{tracing.KeyFrequency, &c.Frequency.Given, &c.Frequency.Clear, c.ReadFrequency},
	} {
		m := v.Member(field.key)
		switch {
		case !m.Exists():
		case m.IsNull():
			*field.given, *field.clear = true, true
		default:
			text, err := m.Text()
			if err != nil {
				return err
			}
			if err := field.read(text.String()); err != nil { // bound: a small body
				return err
			}
		}
	}
	return nil
}

func readTraceLevels(charge *budget.Charge, v jsontext.Value, c *tracing.Change) error {
	elements, err := v.Elements()
	if err != nil {
		return err
	}
	var names []string
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		name, err := e.Text()
		if err != nil {
			return err
		}
		if names, err = budget.Append(charge, budget.JSON, names, name.String()); err != nil { // bound: a small body
			return err
		}
	}
	return c.ReadLevels(names)
}

// bound: the caller has room
func appendTraceSettings(b []byte, settings []tracing.Shown) []byte {
	b = append(b, '{')
	for i, s := range settings {
		b = append(jsontext.AppendString(appendComma(b, i), s.Key), ':')
		if !s.List {
			b = jsontext.AppendString(b, s.Values[0])
			continue
		}
		b = append(b, '[')
		for j, value := range s.Values {
			b = jsontext.AppendString(appendComma(b, j), value)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
