package jsontext

import (
	"bytes"
	"unicode/utf8"
)

// String is the content of a JSON string.
type String struct {
	// Raw is a part of the document, with its escapes.
	Raw []byte
	// Escaped reports whether Raw has escapes.
	Escaped bool
}

// stringAt returns the string whose opening quote is b[i], and the offset after it.
func stringAt(b []byte, i int) (s String, end int) {
	i++
	start := i
	for {
		n := bytes.IndexByte(b[i:], '"')
		if !s.Escaped && bytes.IndexByte(b[i:i+n], '\\') < 0 {
			s.Raw = b[start : i+n]
			return s, i + n + 1
		}
		s.Escaped = true
		slashes := 0
		for k := i + n - 1; k >= start && b[k] == '\\'; k-- {
			slashes++
		}
		i += n + 1
		if slashes%2 == 0 {
			s.Raw = b[start : i-1]
			return s, i
		}
	}
}

// Is reports whether the string is name.
func (s String) Is(name string) bool {
	if !s.Escaped {
		return string(s.Raw) == name
	}
	return len(s.Raw) <= 6*len(name) && s.String() == name // bound: name
}

// String returns the string without its escapes.
//
// bound: charged by the caller
func (s String) String() string {
	if !s.Escaped {
		return string(s.Raw)
	}
	return string(s.AppendTo(nil))
}

// Len is the number of bytes that AppendTo appends.
func (s String) Len() int {
	if !s.Escaped {
		return len(s.Raw)
	}
	n := 0
	for i := 0; i < len(s.Raw); {
		if s.Raw[i] != '\\' {
			n++
			i++
			continue
		}
		r, width := unescape(s.Raw, i)
		n += runeBytes(r)
		i += width
	}
	return n
}

// AppendTo appends the string without its escapes.
//
// bound: the caller has room for Len
func (s String) AppendTo(dst []byte) []byte {
	if !s.Escaped {
		return append(dst, s.Raw...)
	}
	for i := 0; i < len(s.Raw); {
		n := bytes.IndexByte(s.Raw[i:], '\\')
		if n < 0 {
			return append(dst, s.Raw[i:]...)
		}
		dst = append(dst, s.Raw[i:i+n]...)
		r, width := unescape(s.Raw, i+n)
		dst = appendRune(dst, r)
		i += n + width
	}
	return dst
}

// unescape decodes the checked escape at b[i] and returns its width.
func unescape(b []byte, i int) (r rune, width int) {
	switch c := b[i+1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(c), 2
	}
	r, _ = hex4(b, i+2)
	if r < 0xd800 || r > 0xdbff {
		return r, 6
	}
	low, _ := hex4(b, i+8)
	return (r-0xd800)<<10 | (low - 0xdc00) + 0x10000, 12
}

// appendRune encodes r as utf8.AppendRune does. It encodes a lone low surrogate in three bytes, as
// Triton's parser does.
func appendRune(dst []byte, r rune) []byte {
	if 0xdc00 <= r && r <= 0xdfff {
		return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
	}
	return utf8.AppendRune(dst, r)
}

func runeBytes(r rune) int {
	if 0xdc00 <= r && r <= 0xdfff {
		return 3
	}
	return utf8.RuneLen(r)
}
