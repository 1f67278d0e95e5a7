package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sort"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// Errors of values that have another type than is asked for.
var (
	errNotString   = &infer.Error{Code: infer.Internal, Message: "attempt to access JSON non-string as string"}
	errNotBool     = &infer.Error{Code: infer.Internal, Message: "attempt to access JSON non-boolean as boolean"}
	errNotSigned   = &infer.Error{Code: infer.Internal, Message: "attempt to access JSON non-signed-integer as signed-integer"}
	errNotUnsigned = &infer.Error{Code: infer.Internal, Message: "attempt to access JSON non-unsigned-integer as unsigned-integer"}
	errNotDouble   = &infer.Error{Code: infer.Internal, Message: "attempt to access JSON non-number as double"}
	errNotArray    = &infer.Error{Code: infer.Internal, Message: "attempt to access JSON non-array as array"}
	errNotMembers  = &infer.Error{Code: infer.Internal, Message: "attempt to get members for non-object"}
)

// parseJSON checks the syntax of a request's JSON and reports what is wrong
// with it as the protocol does.
func parseJSON(s *jsonScanner, buf []byte) (jsonText, error) {
	t, err := s.scan(buf)
	if err == nil {
		return t, nil
	}
	var syntax *jsonSyntaxError
	if errors.As(err, &syntax) {
		err = infer.Errorf(infer.Internal, "failed to parse the request JSON buffer: %v", syntax)
	}
	return t, err
}

// unableTo puts a context before the error of an accessor: "Unable to parse
// 'name': <err>".
func unableTo(do, name string, err error) error {
	e := infer.AsError(err)
	return &infer.Error{Code: e.Code, Message: "Unable to " + do + " '" + name + "': " + e.Message}
}

func errMissingMember(name string) error {
	return infer.Errorf(infer.Internal, "attempt to access non-existing object member '%s'", name)
}

// jsonValue is the value that begins at an offset of a checked text; the zero
// offset with an empty text is no value.
type jsonValue struct {
	t  *jsonText
	at int
}

func (t *jsonText) value() jsonValue { return jsonValue{t, t.root} }

func (v jsonValue) exists() bool { return v.t != nil }

// first returns the byte that tells the kind: { [ " t f n, or a number's.
func (v jsonValue) first() byte { return v.t.buf[v.at] }

func (v jsonValue) isObject() bool { return v.exists() && v.first() == '{' }
func (v jsonValue) isNull() bool   { return v.first() == 'n' }

func (v jsonValue) boolean() (bool, error) {
	switch v.first() {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, errNotBool
}

func (v jsonValue) str() (jsonString, error) {
	if v.first() != '"' {
		return jsonString{}, errNotString
	}
	s, _ := stringAt(v.t.buf, v.at)
	return s, nil
}

func (v jsonValue) unsigned() (uint64, error) {
	switch kind, u, _ := readNumber(v.t.buf, v.at); kind {
	case smallNumber, bigNumber:
		return u, nil
	}
	return 0, errNotUnsigned
}

// parameter returns the value as a custom parameter; ok is false for arrays,
// objects and null.
func (v jsonValue) parameter(name string) (p infer.Parameter, ok bool) {
	p.Name = name
	switch c := v.first(); c {
	case '"':
		s, _ := stringAt(v.t.buf, v.at)
		p.Kind, p.String = infer.StringParameter, s.String()
	case 't', 'f':
		p.Kind, p.Bool = infer.BoolParameter, c == 't'
	default:
		kind, u, _ := readNumber(v.t.buf, v.at)
		switch kind {
		case notNumber:
			return p, false
		case smallNumber, negativeNumber:
			p.Kind, p.Int = infer.IntParameter, int64(u)
		default:
			p.Kind = infer.DoubleParameter
			p.Double, _, _ = readFloat(v.t.buf, v.at)
		}
	}
	return p, true
}

// brief returns the text of the value for an error, shortened if it is long.
func (v jsonValue) brief() string { return briefly(v.t.buf[v.at:v.end()]) }

// briefly shortens a text that stands in an error.
func briefly(text []byte) string {
	const most = 64
	if len(text) <= most {
		return string(text)
	}
	text = text[:most]
	for len(text) > most-utf8.UTFMax && !utf8.Valid(text) { // a character was cut
		text = text[:len(text)-1]
	}
	return string(text) + "…"
}

// end returns the offset after the value.
func (v jsonValue) end() int {
	b, i := v.t.buf, v.at
	switch b[i] {
	case '"':
		_, end := stringAt(b, i)
		return end
	case '{', '[':
		return v.t.containerEnd(i)
	}
	for i++; i < len(b); i++ {
		switch b[i] {
		case ',', ']', '}', ' ', '\n', '\r', '\t', 0:
			return i
		}
	}
	return i
}

func (t *jsonText) containerEnd(i int) int {
	n := sort.Search(len(t.spans), func(n int) bool { return t.spans[n].start >= i })
	if n < len(t.spans) && t.spans[n].start == i {
		return t.spans[n].end
	}
	depth := 0
	for b := t.buf; ; i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			_, end := stringAt(b, i)
			i = end - 1
		}
	}
}

// jsonMembers walks over the members of an object.
type jsonMembers struct {
	value jsonValue // the one that next returned last
	i     int       // where the first name stands, until next has been called
}

// members begins a walk; anything but an object has none.
func (v jsonValue) members() jsonMembers {
	if !v.isObject() {
		return jsonMembers{}
	}
	return jsonMembers{value: jsonValue{v.t, 0}, i: v.at + 1}
}

func (m *jsonMembers) next() (name jsonString, v jsonValue, ok bool) {
	t := m.value.t
	if t == nil {
		return name, v, false
	}
	i := m.i
	if i == 0 {
		i = m.value.end()
	}
	m.i = 0
	i = skipSpace(t.buf, i)
	if t.buf[i] == ',' {
		i = skipSpace(t.buf, i+1)
	}
	if t.buf[i] == '}' {
		m.value.t = nil
		return name, v, false
	}
	name, i = stringAt(t.buf, i)
	i = skipSpace(t.buf, i)   // to the colon
	i = skipSpace(t.buf, i+1) // to the value
	m.value = jsonValue{t: t, at: i}
	return name, m.value, true
}

// member returns the first member of that name; it does not exist in anything
// but an object.
func (v jsonValue) member(name string) jsonValue {
	for m := v.members(); ; {
		n, value, ok := m.next()
		if !ok {
			return jsonValue{}
		}
		if n.is(name) {
			return value
		}
	}
}

// jsonElements walks over the elements of an array.
type jsonElements struct {
	t    *jsonText
	last int // offset of the element that next returned last, or 0
	i    int // offset after the opening bracket
}

func (v jsonValue) elements() (jsonElements, error) {
	if v.first() != '[' {
		return jsonElements{}, errNotArray
	}
	return jsonElements{t: v.t, i: v.at + 1}, nil
}

func (e *jsonElements) next() (v jsonValue, ok bool) {
	i := e.i
	if e.last != 0 {
		i = jsonValue{e.t, e.last}.end()
	}
	i = skipSpace(e.t.buf, i)
	if e.t.buf[i] == ',' {
		i = skipSpace(e.t.buf, i+1)
	}
	if e.t.buf[i] == ']' {
		e.last, e.i = 0, i
		return v, false
	}
	e.last = i
	return jsonValue{e.t, i}, true
}

// jsonString is what stands between the quotes of a string.
type jsonString struct {
	raw     []byte
	escaped bool
}

// stringAt returns the string whose opening quote is b[i], and the offset after it.
func stringAt(b []byte, i int) (s jsonString, end int) {
	i++
	start := i
	for {
		n := bytes.IndexByte(b[i:], '"')
		if !s.escaped && bytes.IndexByte(b[i:i+n], '\\') < 0 {
			s.raw = b[start : i+n]
			return s, i + n + 1
		}
		s.escaped = true
		slashes := 0
		for k := i + n - 1; k >= start && b[k] == '\\'; k-- {
			slashes++
		}
		i += n + 1
		if slashes%2 == 0 {
			s.raw = b[start : i-1]
			return s, i
		}
	}
}

// is reports whether the string is name.
func (s jsonString) is(name string) bool {
	if !s.escaped {
		return string(s.raw) == name
	}
	return len(s.raw) <= 6*len(name) && s.String() == name
}

// String returns the string without its escapes.
func (s jsonString) String() string {
	if !s.escaped {
		return string(s.raw)
	}
	return string(s.appendTo(nil))
}

// length is the number of bytes that appendTo appends.
func (s jsonString) length() int {
	if !s.escaped {
		return len(s.raw)
	}
	n := 0
	for i := 0; i < len(s.raw); {
		if s.raw[i] != '\\' {
			n++
			i++
			continue
		}
		r, width := unescape(s.raw, i)
		n += runeBytes(r)
		i += width
	}
	return n
}

// appendTo appends the string without its escapes.
func (s jsonString) appendTo(dst []byte) []byte {
	if !s.escaped {
		return append(dst, s.raw...)
	}
	for i := 0; i < len(s.raw); {
		n := bytes.IndexByte(s.raw[i:], '\\')
		if n < 0 {
			return append(dst, s.raw[i:]...)
		}
		dst = append(dst, s.raw[i:i+n]...)
		r, width := unescape(s.raw, i+n)
		dst = appendRune(dst, r)
		i += n + width
	}
	return dst
}

// appendElement appends the string as an element of a BYTES tensor.
func (s jsonString) appendElement(dst []byte) []byte {
	at := len(dst)
	dst = s.appendTo(append(dst, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
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

// appendRune encodes r as utf8.AppendRune does, but a lone low surrogate in
// three bytes, as Triton's parser does.
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
