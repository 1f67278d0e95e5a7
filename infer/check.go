package infer

import (
	"strconv"
	"unicode/utf8"
)

// Limits of the frames that carry a request to a model.
const (
	MaxRank    = 64       // dimensions of a tensor: numpy's own limit
	MaxTensors = 65_534   // inputs of a request, and requested outputs
	MaxText    = 64 << 20 // bytes of a request's strings together
)

// Check rejects a request that a frame cannot carry: strings that are not UTF-8, or more data than
// the limits allow. The error names the field. Bytes of tensors may have any value.
func (r *Request) Check() error {
	if !utf8.ValidString(r.ID) {
		return Errorf(InvalidArg, "the request's 'id' is not valid UTF-8: %s", quoted(r.ID))
	}
	if !utf8.ValidString(r.Correlation.Text) {
		return Errorf(InvalidArg, "%sparameter 'sequence_id' is not valid UTF-8: %s", r.LogPrefix(), quoted(r.Correlation.Text))
	}
	text := len(r.ID) + len(r.Correlation.Text)
	for i := range r.Parameters {
		p := &r.Parameters[i]
		if !utf8.ValidString(p.Name) {
			return Errorf(InvalidArg, "%sthe name of parameter %s is not valid UTF-8", r.LogPrefix(), quoted(p.Name))
		}
		if !utf8.ValidString(p.String) {
			return Errorf(InvalidArg, "%sparameter '%s' is not valid UTF-8: %s", r.LogPrefix(), p.Name, quoted(p.String))
		}
		text += len(p.Name) + len(p.String)
	}
	if text > MaxText {
		return Errorf(InvalidArg, "id, sequence id and parameters of a request have %d bytes, at most %d are allowed", text, MaxText)
	}
	if n := max(len(r.Inputs), len(r.Outputs)); n > MaxTensors {
		return Errorf(InvalidArg, "%srequest has %d inputs and names %d outputs, at most %d of each are allowed",
			r.LogPrefix(), len(r.Inputs), len(r.Outputs), MaxTensors)
	}
	for i := range r.Inputs {
		if rank := len(r.Inputs[i].Shape); rank > MaxRank {
			return Errorf(InvalidArg, "%sinput '%s' has %d dimensions, at most %d are allowed", r.LogPrefix(), r.Inputs[i].Name, rank, MaxRank)
		}
	}
	return nil
}

// quoted returns the beginning of a string that is not UTF-8, with escapes.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s) // bound: most
}
