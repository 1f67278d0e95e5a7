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

// mostCompared is the largest number of parameters of a request that are compared one by one with
// those of the others. More are shared only if all requests have the same list.
const mostCompared = 64

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
	r.Parts = make([]*infer.Request, len(g.tasks)) // bound: the batch
	r.Outputs = slices.Clone(r.Outputs)            // bound: the outputs of the model
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
		r.Parameters = inBoth(r.Parameters, part.Parameters)
		all = all || len(part.Outputs) == 0
		for _, name := range part.Outputs {
			if !slices.Contains(r.Outputs, name) {
				r.Outputs = append(r.Outputs, name) // bound: the outputs of the model
			}
		}
	}
	if all {
		r.Outputs = nil
	}
	if own {
		if err := g.addNotes(); err != nil {
			return infer.Errorf(infer.Unavailable, "batch of %d requests to model '%s' cannot be stacked: %v", len(g.tasks), g.instance.plan.model, err)
		}
	}
	return nil
}

// inBoth returns the parameters of a that b has, too. It changes neither list.
func inBoth(a, b []infer.Parameter) (both []infer.Parameter) {
	if slices.Equal(a, b) {
		return a
	}
	if len(a) > mostCompared || len(b) > mostCompared {
		return nil
	}
	for _, p := range a {
		if slices.Contains(b, p) {
			both = append(both, p) // bound: mostCompared
		}
	}
	return both
}

// addNotes sets requestsParameter beside the parameters that all requests share, whose list may
// belong to a request.
func (g *group) addNotes() error {
	charge := g.chargeOfNotes()
	list, err := budget.Make[infer.Parameter](charge, budget.Frames, len(g.request.Parameters)+1)
	if err != nil {
		return err
	}
	text, err := g.notes(charge)
	if err != nil {
		return err
	}
	list = list[:0]
	for _, p := range g.request.Parameters {
		if p.Name != requestsParameter {
			list = append(list, p) // bound: there is room
		}
	}
	g.request.Parameters = append(list, infer.Parameter{Name: requestsParameter, Kind: infer.StringParameter, String: text}) // bound: there is room
	return nil
}

// chargeOfNotes returns the charge of the group's parameters, or nil without an account.
func (g *group) chargeOfNotes() *budget.Charge {
	if g.instance.account == nil {
		return nil
	}
	g.charge.Account = g.instance.account
	return &g.charge
}

// notes describes each request, as JSON. It is charged until the group ends.
func (g *group) notes(charge *budget.Charge) (string, error) {
	n := 0
	g.writeNotes(func(piece string) { n += len(piece) })
	if err := charge.Take(budget.Frames, int64(n)); err != nil {
		return "", err
	}
	var text strings.Builder
	text.Grow(n)                                                 // bound: charged
	g.writeNotes(func(piece string) { text.WriteString(piece) }) // bound: grown above
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
		text, _ := json.Marshal(valueOf(p)) // it cannot fail; bound: one number
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
