package stacked

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// requestsParameter is the parameter of a stacked request that describes the individual requests.
const requestsParameter = "batch_requests"

// noted reports whether a request has data that would be lost in a batch.
func noted(r *infer.Request) bool {
	return r.ID != "" || len(r.Parameters) > 0 || !r.Correlation.IsZero() || r.Flags != 0
}

// head fills in everything except the inputs. Values that all requests share are kept; others go
// into requestsParameter. The error is a lack of memory.
func (g *group) head() error {
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
		r.Caller = nil // each has its own
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
		text, err := g.notes()
		if err != nil {
			return infer.Errorf(infer.Unavailable, "batch of %d requests to model '%s' cannot be stacked: %v", len(g.tasks), g.instance.plan.model, err)
		}
		r.Parameters = append(r.Parameters, infer.Parameter{Name: requestsParameter, Kind: infer.StringParameter, String: text})
	}
	return nil
}

// notes describes each request, as JSON. The account is charged until the group ends.
func (g *group) notes() (string, error) {
	n := 0
	g.writeNotes(func(piece string) { n += len(piece) })
	if account := g.instance.account; account != nil {
		g.charge.Account = account
		if err := g.charge.Take(budget.Frames, int64(n)); err != nil {
			return "", err
		}
	}
	var text strings.Builder
	text.Grow(n) // bound: charged
	g.writeNotes(func(piece string) { text.WriteString(piece) })
	return text.String(), nil
}

// writeNotes passes the text of notes to put in pieces.
func (g *group) writeNotes(put func(piece string)) {
	for i, task := range g.tasks {
		r := task.Request
		if i == 0 {
			put(`[{"size":`)
		} else {
			put(`,{"size":`)
		}
		put(strconv.FormatInt(g.rows[i], 10))
		if r.ID != "" {
			put(`,"id":`)
			infer.QuoteJSON(r.ID, put)
		}
		switch {
		case r.Correlation.Text != "":
			put(`,"correlation_id":`)
			infer.QuoteJSON(r.Correlation.Text, put)
		case r.Correlation.Number != 0:
			put(`,"correlation_id":`)
			put(strconv.FormatUint(r.Correlation.Number, 10))
		}
		if r.Flags != 0 {
			put(`,"flags":`)
			put(strconv.FormatUint(uint64(r.Flags), 10))
		}
		if len(r.Parameters) > 0 {
			put(`,"parameters":`)
			writeParameters(r.Parameters, put)
		}
		put("}")
	}
	put("]")
}

// writeParameters passes parameters to put as a JSON object, sorted by name. Of equal names the
// last one counts.
func writeParameters(parameters []infer.Parameter, put func(piece string)) {
	sorted := make([]*infer.Parameter, len(parameters)) // bound: the parameters of a request, which are charged
	for i := range parameters {
		sorted[i] = &parameters[i]
	}
	slices.SortStableFunc(sorted, func(a, b *infer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	sep := "{"
	for i, p := range sorted {
		if i+1 < len(sorted) && sorted[i+1].Name == p.Name {
			continue
		}
		put(sep)
		sep = ","
		infer.QuoteJSON(p.Name, put)
		put(":")
		if p.Kind == infer.StringParameter {
			infer.QuoteJSON(p.String, put)
			continue
		}
		text, _ := json.Marshal(valueOf(p)) // it cannot fail
		put(string(text))                   // bound: one number
	}
	put("}")
}

// valueOf returns the value of a parameter that is not a string.
func valueOf(p *infer.Parameter) any {
	switch p.Kind {
	case infer.IntParameter:
		return p.Int
	case infer.BoolParameter:
		return p.Bool
	case infer.DoubleParameter:
		if math.IsNaN(p.Double) || math.IsInf(p.Double, 0) {
			return fmt.Sprint(p.Double) // not a JSON number
		}
		return p.Double
	}
	return nil
}
