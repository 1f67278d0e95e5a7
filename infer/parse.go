package infer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ParseParameters reads what AppendParameters writes: a JSON object of parameters, in its order; names may repeat. No text
// is no parameter.
func ParseParameters(text []byte) ([]Parameter, error) {
	if len(text) == 0 {
		return nil, nil
	}
	// What is no JSON stands for no number that a client can have sent, but for a double of the server's.
	d := json.NewDecoder(bytes.NewReader(text))
	if !json.Valid(text) {
		d = json.NewDecoder(strings.NewReader(quoteDoubles(string(text))))
	}
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
			if rest, ok := strings.CutPrefix(v, doubleMark); ok {
				p.Kind, p.String = DoubleParameter, ""
				if p.Double, err = strconv.ParseFloat(rest, 64); err != nil {
					return nil, err
				}
			}
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
		default:
			return nil, fmt.Errorf("parameter %q is %v, want a string, a number or a bool", p.Name, value)
		}
		list = append(list, p)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return list, nil
}

// doubleMark begins a string that stands for a double which JSON does not know. No client's text has it: quoteDoubles is for texts with such doubles
// alone, in which a string with it would have to be given on purpose, and would be a double then.
const doubleMark = "\u0000double:"

// quoteDoubles makes strings of NaN, Infinity and -Infinity that stand outside of strings.
func quoteDoubles(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		rest := text[i:]
		if text[i] == '"' {
			n := 1
			for n < len(rest) && rest[n] != '"' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			b.WriteString(rest[:n])
			i += n
			continue
		}
		word := ""
		for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
			if strings.HasPrefix(rest, w) {
				word = w
			}
		}
		if word != "" {
			b.WriteString(`"\u0000double:` + word + `"`)
			i += len(word)
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}
