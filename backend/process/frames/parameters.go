package frames

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// parsingCost is the memory for parsing a byte of JSON, in bytes.
const parsingCost = 4

// parameters parses the parameters of a response or request and charges k for them.
func (h *Heap) parameters(text []byte, k *Kept) ([]infer.Parameter, *infer.Error) {
	if k.refusal != nil {
		return nil, k.refusal
	}
	c, parsing := h.charge(k), parsingCost*int64(len(text))
	err := c.Take(budget.Frames, parsing)
	var list []infer.Parameter
	var failure *infer.Error
	if err == nil {
		list, failure, err = parseParameters(text, c)
		c.Give(budget.Frames, parsing)
	}
	if err != nil {
		c.Settle()
		k.refusal = infer.AsError(h.refused(err))
		return nil, k.refusal
	}
	if failure != nil {
		c.Settle()
		return nil, failure
	}
	if c != nil {
		k.n += c.Taken(budget.Frames)
	}
	return list, nil
}

// parseParameters parses the parameters of a response, or of a BLS request, in their order. err
// means that c could not be charged for them.
func parseParameters(text []byte, c *budget.Charge) (list []infer.Parameter, failure *infer.Error, err error) {
	fails := func(format string, args ...any) ([]infer.Parameter, *infer.Error, error) {
		return nil, infer.Errorf(infer.Internal, format, args...), nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	open, err := d.Token()
	if err != nil || open != json.Delim('{') {
		return fails("parameters of the response are not a JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fails("parameters of the response: %v", err)
		}
		name, _ := key.(string)
		value, err := d.Token()
		if err != nil {
			return fails("parameters of the response: %v", err)
		}
		p := infer.Parameter{Name: name}
		switch v := value.(type) {
		case string:
			p.Kind, p.String = infer.StringParameter, v
		case bool:
			p.Kind, p.Bool = infer.BoolParameter, v
		case json.Number:
			n, err := v.Int64()
			if err != nil && strings.ContainsAny(v.String(), ".eE") {
				if p.Double, err = v.Float64(); err == nil { // plugins send them
					p.Kind = infer.DoubleParameter
					break
				}
			}
			if err != nil {
				return fails("Unsupported value type on parameters")
			}
			p.Kind, p.Int = infer.IntParameter, n
		default:
			return fails("Unsupported value type on parameters")
		}
		if err := c.Take(budget.Frames, int64(len(p.Name)+len(p.String))); err != nil {
			return nil, nil, err
		}
		if list, err = budget.Append(c, budget.Frames, list, p); err != nil {
			return nil, nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return fails("parameters of the response: %v", err)
	}
	return list, nil, nil
}
