package infer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// ParseParameters parses the output of AppendParameters: a JSON object of parameters, in its order,
// whose names may repeat. An empty text has no parameters.
func ParseParameters(text []byte) ([]Parameter, error) {
	if len(text) == 0 {
		return nil, nil
	}
	// An invalid text may contain doubles that JSON does not know.
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
		p := Parameter{Name: name.(string)} // the decoder allows nothing else
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
		list = append(list, p) // bound: the text
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return list, nil
}

func unknownValue(name string, value any) error {
	return fmt.Errorf("parameter %q is %v, want a string, a number or a bool", name, value)
}

// unknownDoubles are the doubles unknown to JSON, as appendJSONDouble writes them.
var unknownDoubles = []struct {
	word  string
	value float64
}{{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)}}

// liftDoubles replaces each unknown double outside strings by null, and returns the doubles by the
// offset at which their null ends. So neither strings nor nulls of the old text are mistaken for
// doubles.
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
			if rest, ok := bytes.CutPrefix(text, []byte(u.word)); ok { // bound: a constant
				b, text = append(b, "null"...), rest // bound: the text
				doubles[int64(len(b))] = u.value     // bound: the text
				continue next
			}
		}
		b, text = append(b, text[:n]...), text[n:] // bound: the text
	}
	return b, doubles
}
