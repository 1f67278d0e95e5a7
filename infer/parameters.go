package infer

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// ParametersSize returns the number of bytes that AppendParameters appends.
func ParametersSize(parameters []Parameter) int {
	if len(parameters) == 0 {
		return 0
	}
	n := 1 + 2*len(parameters) // braces, commas and colons
	for i := range parameters {
		p := &parameters[i]
		n += jsonStringSize(p.Name)
		if p.Kind == StringParameter {
			n += jsonStringSize(p.String)
			continue
		}
		var room [32]byte
		n += len(appendJSONScalar(room[:0], p))
	}
	return n
}

// AppendParameters appends parameters as the JSON object that model processes exchange; nothing if
// there are no parameters. Names may repeat.
//
// bound: ParametersSize
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
		if p.Kind == StringParameter {
			b = appendJSONString(b, p.String)
		} else {
			b = appendJSONScalar(b, p)
		}
	}
	return append(b, '}')
}

func appendJSONScalar(b []byte, p *Parameter) []byte {
	switch p.Kind {
	case IntParameter:
		return strconv.AppendInt(b, p.Int, 10)
	case BoolParameter:
		return strconv.AppendBool(b, p.Bool)
	case DoubleParameter:
		return appendJSONDouble(b, p.Double)
	}
	return append(b, "null"...)
}

// appendJSONDouble writes whole numbers with ".0", so that they stay doubles, and values unknown to
// JSON as Python does.
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

// appendJSONString appends a plain string between quotes, and other strings as QuoteJSON does.
func appendJSONString(b []byte, s string) []byte {
	if !plain(s) {
		return appendQuoted(b, s)
	}
	b = append(b, '"')
	b = append(b, s...) // bound: jsonStringSize
	return append(b, '"')
}

func jsonStringSize(s string) int {
	if !plain(s) {
		return quotedSize(s)
	}
	return len(s) + 2
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendQuoted(b []byte, s string) []byte {
	QuoteJSON(s, func(piece string) { b = append(b, piece...) }) // bound: quotedSize
	return b
}

func quotedSize(s string) (n int) {
	QuoteJSON(s, func(piece string) { n += len(piece) })
	return n
}

// QuoteJSON passes s as a JSON string to put, in pieces and without allocation. The pieces together
// equal the output of json.Marshal.
func QuoteJSON(s string, put func(piece string)) {
	put(`"`)
	from := 0 // s[from:i] has not been put
	for i := 0; i < len(s); {
		escape, size := "", 1
		if c := s[i]; c < utf8.RuneSelf {
			escape = escapes[c]
		} else {
			var r rune
			switch r, size = utf8.DecodeRuneInString(s[i:]); {
			case r == utf8.RuneError && size == 1:
				escape = `\ufffd`
			case r == '\u2028':
				escape = `\u2028`
			case r == '\u2029':
				escape = `\u2029`
			}
		}
		if escape != "" {
			if from < i {
				put(s[from:i])
			}
			put(escape)
			from = i + size
		}
		i += size
	}
	if from < len(s) {
		put(s[from:])
	}
	put(`"`)
}

// escapes has the escape sequences of ASCII characters that are special in JSON or HTML.
var escapes = func() (table [utf8.RuneSelf]string) {
	const hex = "0123456789abcdef"
	for c := range table {
		if c >= 0x20 && c != '<' && c != '>' && c != '&' {
			continue
		}
		table[c] = `\u00` + hex[c>>4:c>>4+1] + hex[c&15:c&15+1]
	}
	table['"'], table['\\'] = `\"`, `\\`
	table['\b'], table['\f'], table['\n'], table['\r'], table['\t'] = `\b`, `\f`, `\n`, `\r`, `\t`
	return table
}()
