package jsontext

import (
	"errors"
	"sort"
	"unicode/utf8"
)

// Errors of values of the wrong type, word for word those of Triton's parser.
var (
	errNotString   = errors.New("attempt to access JSON non-string as string")
	errNotBool     = errors.New("attempt to access JSON non-boolean as boolean")
	errNotSigned   = errors.New("attempt to access JSON non-signed-integer as signed-integer")
	errNotUnsigned = errors.New("attempt to access JSON non-unsigned-integer as unsigned-integer")
	errNotDouble   = errors.New("attempt to access JSON non-number as double")

	// ErrNotArray is the error of Elements and Leaves for other values.
	ErrNotArray = errors.New("attempt to access JSON non-array as array")
	// ErrNotObject is for callers that require an object.
	ErrNotObject = errors.New("attempt to get members for non-object")
)

// Value is a value of a document. The zero Value does not exist.
type Value struct {
	t  *Document
	at int
}

// Root returns the outermost value.
func (t *Document) Root() Value { return Value{t, t.root} }

// Exists reports whether there is a value at all.
func (v Value) Exists() bool { return v.t != nil }

// first returns the first byte, which determines the kind: { [ " t f n, or a number's.
func (v Value) first() byte { return v.t.buf[v.at] }

// IsObject reports whether the value exists and is an object.
func (v Value) IsObject() bool { return v.Exists() && v.first() == '{' }

// IsArray reports whether the value, which exists, is an array.
func (v Value) IsArray() bool { return v.first() == '[' }

// IsNull reports whether the value, which exists, is null.
func (v Value) IsNull() bool { return v.first() == 'n' }

// Bool returns the value, which exists, if it is true or false.
func (v Value) Bool() (bool, error) {
	switch v.first() {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, errNotBool
}

// Text returns the value, which exists, if it is a string.
func (v Value) Text() (String, error) {
	if v.first() != '"' {
		return String{}, errNotString
	}
	s, _ := stringAt(v.t.buf, v.at)
	return s, nil
}

// Uint returns a whole number that fits a uint64.
func (v Value) Uint() (uint64, error) {
	switch kind, u, _ := readNumber(v.t.buf, v.at); kind {
	case smallNumber, bigNumber:
		return u, nil
	}
	return 0, errNotUnsigned
}

// Int returns a whole number that fits an int64.
func (v Value) Int() (int64, error) {
	switch kind, u, _ := readNumber(v.t.buf, v.at); kind {
	case smallNumber, negativeNumber:
		return int64(u), nil
	}
	return 0, errNotSigned
}

// Float returns a number as the nearest double.
func (v Value) Float() (float64, error) {
	f, _, ok := readFloat(v.t.buf, v.at)
	if !ok {
		return 0, errNotDouble
	}
	return f, nil
}

// Raw returns the text of the value, which exists, as a part of the document.
func (v Value) Raw() []byte { return v.t.buf[v.at:v.end()] }

// Brief returns the text of the value for an error, shortened if it is long.
func (v Value) Brief() string { return Brief(v.t.buf[v.at:v.end()]) }

// Brief shortens a text for an error.
func Brief(text []byte) string {
	const most = 64
	if len(text) <= most {
		return string(text) // bound: most
	}
	text = text[:most]
	for len(text) > most-utf8.UTFMax && !utf8.Valid(text) { // a character was cut
		text = text[:len(text)-1]
	}
	return string(text) + "…" // bound: most
}

// end returns the offset after the value.
func (v Value) end() int {
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

func (t *Document) containerEnd(at int) int {
	if t.walked.start == at && t.walked.end > 0 {
		return t.walked.end
	}
	n := sort.Search(len(t.spans), func(n int) bool { return t.spans[n].start >= at })
	if n < len(t.spans) && t.spans[n].start == at {
		return t.spans[n].end
	}
	depth, i := 0, at
	for b := t.buf; ; i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				t.walked = span{at, i + 1}
				return i + 1
			}
		case '"':
			_, end := stringAt(b, i)
			i = end - 1
		}
	}
}

// Members walks over the members of an object.
type Members struct {
	t    *Document // nil after the last one
	at   int       // of the object
	last int       // offset of the value that Next returned last, or 0
}

// Members begins a walk over an object. Other values have no members.
func (v Value) Members() Members {
	if !v.IsObject() {
		return Members{}
	}
	return Members{t: v.t, at: v.at}
}

// Next returns the next member; ok is false after the last one.
func (m *Members) Next() (name String, v Value, ok bool) {
	t := m.t
	if t == nil {
		return name, v, false
	}
	i := m.at + 1
	if m.last != 0 {
		i = Value{t, m.last}.end()
	}
	i = skipSpace(t.buf, i)
	if t.buf[i] == ',' {
		i = skipSpace(t.buf, i+1)
	}
	if t.buf[i] == '}' {
		t.walked = span{m.at, i + 1}
		m.t = nil
		return name, v, false
	}
	name, i = stringAt(t.buf, i)
	i = skipSpace(t.buf, i)   // to the colon
	i = skipSpace(t.buf, i+1) // to the value
	m.last = i
	return name, Value{t, i}, true
}

// Member returns the first member of that name. It does not exist if v is not an object.
func (v Value) Member(name string) Value {
	for m := v.Members(); ; {
		n, value, ok := m.Next()
		if !ok {
			return Value{}
		}
		if n.Is(name) {
			return value
		}
	}
}

// Elements walks over the elements of an array.
type Elements struct {
	t    *Document
	at   int // of the array
	last int // offset of the element that Next returned last, or 0
	end  int // offset of the closing bracket, once it has been found
}

// Elements begins a walk over the elements of an array.
func (v Value) Elements() (Elements, error) {
	if v.first() != '[' {
		return Elements{}, ErrNotArray
	}
	return Elements{t: v.t, at: v.at}, nil
}

// Next returns the next element; ok is false after the last one.
func (e *Elements) Next() (v Value, ok bool) {
	if e.end != 0 {
		return v, false
	}
	i := e.at + 1
	if e.last != 0 {
		i = Value{e.t, e.last}.end()
	}
	i = skipSpace(e.t.buf, i)
	if e.t.buf[i] == ',' {
		i = skipSpace(e.t.buf, i+1)
	}
	if e.t.buf[i] == ']' {
		e.t.walked, e.end = span{e.at, i + 1}, i
		return v, false
	}
	e.last = i
	return Value{e.t, i}, true
}
