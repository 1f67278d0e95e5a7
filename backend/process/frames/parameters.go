package frames

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

// appendParameters appends the JSON object that request.parameters() returns;
// nothing if there are none.
func appendParameters(b []byte, parameters []infer.Parameter) []byte {
	if len(parameters) == 0 {
		return b
	}
	sep := byte('{')
	for i := range parameters {
		p := &parameters[i]
		b = append(b, sep)
		sep = ','
		b = appendJSONString(b, p.Name)
		b = append(b, ':')
		switch p.Kind {
		case infer.StringParameter:
			b = appendJSONString(b, p.String)
		case infer.IntParameter:
			b = strconv.AppendInt(b, p.Int, 10)
		case infer.BoolParameter:
			b = strconv.AppendBool(b, p.Bool)
		case infer.DoubleParameter:
			b = appendJSONDouble(b, p.Double)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

// appendJSONDouble writes whole numbers with ".0", so that they stay doubles,
// and what JSON does not know as stubs read it.
func appendJSONDouble(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	case v == math.Trunc(v) && math.Abs(v) < 1e21:
		return append(strconv.AppendFloat(b, v, 'f', -1, 64), ".0"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // not possible for a string
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

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
