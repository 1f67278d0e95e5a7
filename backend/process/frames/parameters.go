package frames

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// ParseParameters reads the parameters of a response, or of a BLS request, in their
// order.
func ParseParameters(text []byte) ([]infer.Parameter, *infer.Error) {
	var list []infer.Parameter
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	open, err := d.Token()
	if err != nil || open != json.Delim('{') {
		return nil, infer.Errorf(infer.Internal, "parameters of the response are no JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, infer.Errorf(infer.Internal, "parameters of the response: %v", err)
		}
		name, _ := key.(string)
		value, err := d.Token()
		if err != nil {
			return nil, infer.Errorf(infer.Internal, "parameters of the response: %v", err)
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
				if p.Double, err = v.Float64(); err == nil { // plugins have them
					p.Kind = infer.DoubleParameter
					break
				}
			}
			if err != nil {
				return nil, infer.Errorf(infer.Internal, "Unsupported value type on parameters")
			}
			p.Kind, p.Int = infer.IntParameter, n
		default:
			return nil, infer.Errorf(infer.Internal, "Unsupported value type on parameters")
		}
		list = append(list, p)
	}
	if _, err := d.Token(); err != nil {
		return nil, infer.Errorf(infer.Internal, "parameters of the response: %v", err)
	}
	return list, nil
}
