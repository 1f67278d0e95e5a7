package infer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// ParseParameters reads what AppendParameters writes: a JSON object of parameters, in its order; names may repeat. No text
// is no parameter.
func ParseParameters(text []byte) ([]Parameter, error) {
	if len(text) == 0 {
		return nil, nil
	}
	// Where a text is no JSON it may have doubles that JSON does not know.
	var doubles map[int64]float64
	if !json.Valid(text) {
		text, doubles = liftDoubles(text)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("parameters begin with %v, want an object", open)
	}
	var list []Parameter
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := d.Token()
		if err != nil {
			return nil, err
		}
		p := Parameter{Name: name.(string)} // the decoder lets nothing else pass
		switch v := value.(type) {
		case string:
			p.Kind, p.String = StringParameter, v
		case bool:
			p.Kind, p.Bool = BoolParameter, v
		case json.Number:
			p.Kind = IntParameter
			if p.Int, err = v.Int64(); err != nil {
				p.Kind = DoubleParameter
				if p.Double, err = v.Float64(); err != nil {
					return nil, err
				}
			}
		case nil:
			lifted, ok := doubles[d.InputOffset()]
			if !ok {
				return nil, unknownValue(p.Name, value)
			}
			p.Kind, p.Double = DoubleParameter, lifted
		default:
			return nil, unknownValue(p.Name, value)
		}
		list = append(list, p)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return list, nil
}

func unknownValue(name string, value any) error {
	return fmt.Errorf("parameter %q is %v, want a string, a number or a bool", name, value)
}

// unknownDoubles are the doubles that JSON does not know, as appendJSONDouble writes them.
var unknownDoubles = []struct {
	word  string
	value float64
}{{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)}}

// liftDoubles puts null in the place of each unknown double that stands outside of strings, and returns the doubles by the offset in the
// new text at which their null ends. So no string, whatever a client has written into it, is taken for a double, and no null of the old text either.
func liftDoubles(text []byte) ([]byte, map[int64]float64) {
	var b []byte
	doubles := map[int64]float64{}
next:
	for len(text) > 0 {
		n := 1
		if text[0] == '"' {
			for n < len(text) && text[n] != '"' {
				if text[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(text))
		}
		for _, u := range unknownDoubles {
			if rest, ok := bytes.CutPrefix(text, []byte(u.word)); ok {
				b, text = append(b, "null"...), rest
				doubles[int64(len(b))] = u.value
				continue next
			}
		}
		b, text = append(b, text[:n]...), text[n:]
	}
	return b, doubles
}
