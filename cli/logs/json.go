package logs

import (
	"iter"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A zerolog line is one JSON object that this process has just written. The functions here parse it
// and rewrite the message, without reflection and without allocating.

// members yields the members of a JSON object: keys without their quotes, and unparsed values. It
// stops at text that is not part of an object.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := 0
		for i < len(object) && object[i] != '{' {
			i++
		}
		for i++; i < len(object) && object[i] == '"'; i++ { // after the brace or a comma
			end := skipValue(object, i)
			key := object[i+1 : max(end-1, i+1)]
			if end >= len(object) || object[end] != ':' {
				return
			}
			i = skipValue(object, end+1)
			if !yield(key, object[end+1:i]) {
				return
			}
		}
	}
}

// skipValue returns the end of the JSON value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for quoted := false; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case (c == ',' || c == ':') && depth == 0:
			return i
		}
	}
	return len(b)
}

// appendPlain appends a JSON value as text: a string without quotes and escapes, any other value
// unchanged.
func appendPlain(dst, value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return append(dst, value...)
	}
	value = value[1 : len(value)-1]
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c != '\\' || i+1 == len(value) {
			dst = append(dst, c)
			continue
		}
		i++
		switch value[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := unicodeEscape(value[i-1:])
			dst = utf8.AppendRune(dst, r)
			i += n - 2
		default:
			dst = append(dst, value[i])
		}
	}
	return dst
}

// appendList appends a JSON array with its strings in quotes and without their escapes.
func appendList(dst, list []byte) []byte {
	dst = append(dst, '[')
	for i := 1; i < len(list)-1; {
		if i > 1 {
			dst = append(dst, ',')
		}
		end := skipValue(list, i)
		if list[i] == '"' {
			dst = append(appendPlain(append(dst, '"'), list[i:end]), '"')
		} else {
			dst = append(dst, list[i:end]...)
		}
		i = end + 1
	}
	return append(dst, ']')
}

// unicodeEscape decodes \uXXXX, or a surrogate pair, at the beginning of b. It returns the number
// of bytes read, at least two.
func unicodeEscape(b []byte) (rune, int) {
	first, ok := hexRune(b)
	if !ok {
		return utf8.RuneError, 2
	}
	if utf16.IsSurrogate(first) {
		if second, ok := hexRune(b[6:]); ok {
			return utf16.DecodeRune(first, second), 12
		}
	}
	return first, 6
}

func hexRune(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

const upperHex = "0123456789ABCDEF"

// appendQuoted appends text as a JSON string, escaped like Triton: only quotes, backslashes and
// control characters.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= ' ':
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, upperHex[c>>4], upperHex[c&15])
		}
	}
	return append(dst, '"')
}
