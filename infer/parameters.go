package infer

import (
	"encoding/json"
	"math"
	"strconv"
)

// AppendParameters appends parameters as the JSON object that processes of models are sent, and send; nothing
// if there are none. Names may repeat.
func AppendParameters(b []byte, parameters []Parameter) []byte {
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
		case StringParameter:
			b = appendJSONString(b, p.String)
		case IntParameter:
			b = strconv.AppendInt(b, p.Int, 10)
		case BoolParameter:
			b = strconv.AppendBool(b, p.Bool)
		case DoubleParameter:
			b = appendJSONDouble(b, p.Double)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

// appendJSONDouble writes whole numbers with ".0", so that they stay doubles,
// and what JSON does not know as Python writes it.
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
