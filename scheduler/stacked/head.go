package stacked

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// requestsParameter is the parameter of a stacked request that says what its
// requests have of their own.
const requestsParameter = "batch_requests"

// note is what requestsParameter says of one request.
type note struct {
	Size        int64          `json:"size"` // rows
	ID          string         `json:"id,omitempty"`
	Correlation any            `json:"correlation_id,omitempty"`
	Flags       uint32         `json:"flags,omitempty"`
	Parameters  map[string]any `json:"parameters,omitempty"`
}

// noted reports whether a request has something that gets lost in a batch.
func noted(r *infer.Request) bool {
	return r.ID != "" || len(r.Parameters) > 0 || !r.Correlation.IsZero() || r.Flags != 0
}

// head fills in all but the inputs: what the requests have in common stays as it
// is, what differs is left out and stands in requestsParameter.
func (g *group) head() {
	r := &g.request
	*r = *g.tasks[0].Request
	r.Inputs, r.Raw, r.BatchSize = nil, false, g.total
	r.Parts = make([]*infer.Request, len(g.tasks))
	r.Parameters = slices.Clone(r.Parameters)
	r.Outputs = slices.Clone(r.Outputs)
	all, own := len(r.Outputs) == 0, false
	for i, task := range g.tasks {
		part := task.Request
		r.Parts[i] = part
		own = own || noted(part)
		if i == 0 {
			continue
		}
		r.Caller = nil // several have one of their own
		if part.ID != r.ID {
			r.ID = ""
		}
		if part.Correlation != r.Correlation {
			r.Correlation = infer.CorrelationID{}
		}
		if part.Flags != r.Flags {
			r.Flags = 0
		}
		if t := part.TimeoutMicros; t != 0 && (r.TimeoutMicros == 0 || t < r.TimeoutMicros) {
			r.TimeoutMicros = t
		}
		r.Parameters = slices.DeleteFunc(r.Parameters, func(p infer.Parameter) bool { return !slices.Contains(part.Parameters, p) })
		all = all || len(part.Outputs) == 0
		for _, name := range part.Outputs {
			if !slices.Contains(r.Outputs, name) {
				r.Outputs = append(r.Outputs, name)
			}
		}
	}
	if all {
		r.Outputs = nil
	}
	if own {
		r.Parameters = slices.DeleteFunc(r.Parameters, func(p infer.Parameter) bool { return p.Name == requestsParameter })
		r.Parameters = append(r.Parameters, infer.Parameter{Name: requestsParameter, Kind: infer.StringParameter, String: g.notes()})
	}
}

// notes writes what each request has of its own.
func (g *group) notes() string {
	notes := make([]note, len(g.tasks))
	for i, task := range g.tasks {
		r := task.Request
		n := note{Size: g.rows[i], ID: r.ID, Flags: r.Flags}
		switch {
		case r.Correlation.Text != "":
			n.Correlation = r.Correlation.Text
		case r.Correlation.Number != 0:
			n.Correlation = r.Correlation.Number
		}
		for j := range r.Parameters {
			if n.Parameters == nil {
				n.Parameters = make(map[string]any, len(r.Parameters))
			}
			n.Parameters[r.Parameters[j].Name] = valueOf(&r.Parameters[j])
		}
		notes[i] = n
	}
	text, err := json.Marshal(notes)
	if err != nil { // not possible for these types
		return "[]"
	}
	return string(text)
}

func valueOf(p *infer.Parameter) any {
	switch p.Kind {
	case infer.StringParameter:
		return p.String
	case infer.IntParameter:
		return p.Int
	case infer.BoolParameter:
		return p.Bool
	case infer.DoubleParameter:
		if math.IsNaN(p.Double) || math.IsInf(p.Double, 0) {
			return fmt.Sprint(p.Double) // JSON has no number for it
		}
		return p.Double
	}
	return nil
}
