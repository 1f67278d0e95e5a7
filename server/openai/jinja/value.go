package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is nil (None), Undefined, bool, int64, float64, string, List, *Dict, or what
// templates make themselves.
type Value any

// Undefined is what a name stands for that nothing has set.
type Undefined struct{ name string }

// List is a list or a tuple.
type List []Value

// Dict has members by name, in the order in which they were set. The zero value is empty.
type Dict struct {
	names     []string
	values    map[string]Value
	namespace bool // templates may set its members
}

// Set gives a member its value.
func (d *Dict) Set(name string, v Value) {
	if d.values == nil {
		d.values = map[string]Value{}
	}
	if _, known := d.values[name]; !known {
		d.names = append(d.names, name)
	}
	d.values[name] = v
}

// Member returns a member.
func (d *Dict) Member(name string) (Value, bool) {
	v, ok := d.values[name]
	return v, ok
}

// function is what can be called.
type function func(r *run, a *arguments) (Value, error)

// arguments of a call, a filter or a test.
type arguments struct {
	list  []Value
	named map[string]Value
	order []string // of the names
}

// at returns an argument by its place or its name.
func (a *arguments) at(i int, name string) (Value, bool) {
	if i < len(a.list) {
		return a.list[i], true
	}
	v, ok := a.named[name]
	return v, ok
}

func (a *arguments) text(i int, name, otherwise string) string {
	if v, ok := a.at(i, name); ok && v != nil {
		return str(v)
	}
	return otherwise
}

func (a *arguments) int(i int, name string, otherwise int) (int, error) {
	v, ok := a.at(i, name)
	if !ok || v == nil {
		return otherwise, nil
	}
	n, ok := asInt(v)
	if !ok || n > math.MaxInt32 || n < math.MinInt32 {
		return 0, fmt.Errorf("argument %s is %s, want an integer", name, typeName(v))
	}
	return int(n), nil
}

// typeName is what Python calls the type of a value.
func typeName(v Value) string {
	switch v.(type) {
	case nil:
		return "NoneType"
	case Undefined:
		return "Undefined"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case List:
		return "list"
	case *Dict:
		return "dict"
	}
	return "function"
}

func truth(v Value) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case List:
		return len(v) > 0
	case *Dict:
		return v.namespace || len(v.names) > 0
	}
	return true
}

// asInt returns a whole number; booleans are numbers, as in Python.
func asInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

func asFloat(v Value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := asInt(v)
	return float64(n), ok
}

func equal(a, b Value) bool {
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case string:
		t, ok := b.(string)
		return ok && a == t
	case List:
		t, ok := b.(List)
		if !ok || len(a) != len(t) {
			return false
		}
		for i := range a {
			if !equal(a[i], t[i]) {
				return false
			}
		}
		return true
	case *Dict:
		t, ok := b.(*Dict)
		if a.namespace || ok && t.namespace {
			return a == t
		}
		if !ok || len(a.names) != len(t.names) {
			return false
		}
		for name, v := range a.values {
			if w, ok := t.values[name]; !ok || !equal(v, w) {
				return false
			}
		}
		return true
	}
	return false
}

// less compares two numbers, texts or lists.
func less(a, b Value) (bool, error) {
	x, isNumber := asFloat(a)
	y, another := asFloat(b)
	if isNumber && another {
		return x < y, nil
	}
	switch a := a.(type) {
	case string:
		if t, ok := b.(string); ok {
			return a < t, nil
		}
	case List:
		if t, ok := b.(List); ok {
			for i := range min(len(a), len(t)) {
				if !equal(a[i], t[i]) {
					return less(a[i], t[i])
				}
			}
			return len(a) < len(t), nil
		}
	}
	return false, fmt.Errorf("'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
}

// contains is Python's "v in whole".
func contains(whole, v Value) (bool, error) {
	switch whole := whole.(type) {
	case Undefined:
		return false, nil
	case string:
		if s, ok := v.(string); ok {
			return strings.Contains(whole, s), nil
		}
		return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", typeName(v))
	case List:
		for _, e := range whole {
			if equal(e, v) {
				return true, nil
			}
		}
		return false, nil
	case *Dict:
		name, ok := v.(string)
		_, there := whole.values[name]
		return ok && there, nil
	}
	return false, fmt.Errorf("argument of type '%s' is not iterable", typeName(whole))
}

// items returns what a loop over a value goes through.
func items(v Value) (List, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, nil
	case List:
		return v, nil
	case *Dict:
		list := make(List, len(v.names))
		for i, name := range v.names {
			list[i] = name
		}
		return list, nil
	case string:
		list := make(List, 0, len(v))
		for _, c := range v {
			list = append(list, string(c))
		}
		return list, nil
	}
	return nil, fmt.Errorf("'%s' object is not iterable", typeName(v))
}

func length(v Value) (int, error) {
	switch v := v.(type) {
	case Undefined:
		return 0, nil
	case string:
		return utf8.RuneCountInString(v), nil
	case List:
		return len(v), nil
	case *Dict:
		return len(v.names), nil
	}
	return 0, fmt.Errorf("object of type '%s' has no len()", typeName(v))
}

// str is Python's str(v).
func str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case Undefined:
		return ""
	}
	var b strings.Builder
	repr(&b, v)
	return b.String()
}

func repr(b *strings.Builder, v Value) {
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case Undefined:
		b.WriteString("Undefined")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(floatText(v))
	case string:
		reprText(b, v)
	case List:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			repr(b, e)
		}
		b.WriteByte(']')
	case *Dict:
		if v.namespace { // it may have itself as a member
			b.WriteString("<Namespace>")
			return
		}
		b.WriteByte('{')
		for i, name := range v.names {
			if i > 0 {
				b.WriteString(", ")
			}
			reprText(b, name)
			b.WriteString(": ")
			repr(b, v.values[name])
		}
		b.WriteByte('}')
	default:
		b.WriteString("<function>")
	}
}

func reprText(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == rune(quote) || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(b, `\x%02x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte(quote)
}

// floatText prints a number as Python does.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a >= 1e16 || a < 1e-4 && a > 0 {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
