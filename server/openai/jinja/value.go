package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is nil (None), Undefined, bool, int64, float64, string, List, *Dict, or what
// templates make themselves.
type Value any

// Undefined is what a name stands for that nothing has set. name is the whole reason if
// there is no of.
type Undefined struct{ of, name string }

// noVariable is the "of" of an unknown variable.
const noVariable = "variable"

func (u Undefined) why() error {
	switch u.of {
	case "":
		return errors.New(u.name)
	case noVariable:
		return fmt.Errorf("'%s' is undefined", u.name)
	case "NoneType":
		return fmt.Errorf("'None' has no attribute '%s'", brief(u.name))
	}
	return fmt.Errorf("'%s object' has no attribute '%s'", u.of, brief(u.name))
}

// brief shortens a text that stands in an error.
func brief(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // bound: most
}

// List is a list or a tuple.
type List []Value

// Dict has members by name, in the order in which they were set. Meter.Set sets them.
type Dict struct {
	members   []member
	index     map[string]int // of members; nil while there are few
	namespace bool           // templates may set its members
}

type member struct {
	name  string
	value Value
}

// indexFrom is how many members a dict has before it gets an index.
const indexFrom = 16

// find returns the place of a member, or -1.
func (d *Dict) find(name string) int {
	if d.index != nil {
		if i, ok := d.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range d.members {
		if d.members[i].name == name {
			return i
		}
	}
	return -1
}

func (d *Dict) member(name string) (Value, bool) {
	if i := d.find(name); i >= 0 {
		return d.members[i].value, true
	}
	return nil, false
}

// function is what can be called.
type function func(r *run, a *arguments) (Value, error)

// arguments of a call, a filter or a test.
type arguments struct {
	list  []Value
	named []member
}

// at returns an argument by its place or its name.
func (a *arguments) at(i int, name string) (Value, bool) {
	if i < len(a.list) {
		return a.list[i], true
	}
	return a.name(name)
}

func (a *arguments) name(name string) (Value, bool) {
	for _, one := range a.named {
		if one.name == name {
			return one.value, true
		}
	}
	return nil, false
}

func (a *arguments) text(m *Meter, i int, name, otherwise string) (string, error) {
	if v, ok := a.at(i, name); ok && v != nil {
		return m.str(v)
	}
	return otherwise, nil
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
	case *position:
		return "jinja2.runtime.LoopContext"
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
		return v.namespace || len(v.members) > 0
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

func (m *Meter) equal(a, b Value) (same bool, err error) {
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y, nil
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case Undefined:
		_, ok := b.(Undefined)
		return ok, nil
	case string:
		t, ok := b.(string)
		if !ok || len(a) != len(t) {
			return false, nil
		}
		return a == t, m.read(len(a))
	case List:
		t, ok := b.(List)
		if !ok || len(a) != len(t) {
			return false, nil
		}
		return m.all(len(a), func(i int) (bool, error) { return m.equal(a[i], t[i]) })
	case *Dict:
		t, ok := b.(*Dict)
		if a.namespace || ok && t.namespace {
			return a == t, nil
		}
		if !ok || len(a.members) != len(t.members) {
			return false, nil
		}
		return m.all(len(a.members), func(i int) (bool, error) {
			other, ok := t.member(a.members[i].name)
			if !ok {
				return false, nil
			}
			return m.equal(a.members[i].value, other)
		})
	}
	return false, nil
}

// all reports whether n parts of a value hold.
func (m *Meter) all(n int, holds func(i int) (bool, error)) (bool, error) {
	defer m.outside()
	if err := m.inside(); err != nil {
		return false, err
	}
	for i := range n {
		if err := m.step(); err != nil {
			return false, err
		}
		if ok, err := holds(i); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// less compares two numbers, texts or lists.
func (m *Meter) less(a, b Value) (bool, error) {
	x, isNumber := asFloat(a)
	y, another := asFloat(b)
	if isNumber && another {
		return x < y, nil
	}
	switch a := a.(type) {
	case string:
		if t, ok := b.(string); ok {
			return a < t, m.read(min(len(a), len(t)))
		}
	case List:
		if t, ok := b.(List); ok {
			return m.lessLists(a, t)
		}
	}
	return false, fmt.Errorf("'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
}

func (m *Meter) lessLists(a, b List) (bool, error) {
	defer m.outside()
	if err := m.inside(); err != nil {
		return false, err
	}
	for i := range min(len(a), len(b)) {
		if err := m.step(); err != nil {
			return false, err
		}
		if same, err := m.equal(a[i], b[i]); err != nil {
			return false, err
		} else if !same {
			return m.less(a[i], b[i])
		}
	}
	return len(a) < len(b), nil
}

// index returns where v is in a list, -1 if it is not there.
func (m *Meter) index(l List, v Value) (int, error) {
	for i, e := range l {
		if err := m.step(); err != nil {
			return 0, err
		}
		if same, err := m.equal(e, v); same || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// contains is Python's "v in whole".
func (m *Meter) contains(whole, v Value) (bool, error) {
	switch whole := whole.(type) {
	case Undefined:
		return false, nil
	case string:
		if s, ok := v.(string); ok {
			return strings.Contains(whole, s), m.read(len(whole))
		}
		return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", typeName(v))
	case List:
		i, err := m.index(whole, v)
		return i >= 0 && err == nil, err
	case *Dict:
		name, ok := v.(string)
		return ok && whole.find(name) >= 0, nil
	}
	return false, fmt.Errorf("argument of type '%s' is not iterable", typeName(whole))
}

// items returns what a loop over a value goes through.
func (m *Meter) items(v Value) (List, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, nil
	case List:
		return v, nil
	case *Dict:
		list, err := m.list(len(v.members))
		for i := 0; err == nil && i < len(v.members); i++ {
			list, err = m.Append(list, v.members[i].name)
		}
		return list, err
	case string:
		n, err := m.length(v)
		if err != nil {
			return nil, err
		}
		list, err := m.list(n)
		for i := 0; err == nil && i < len(v); {
			_, size := utf8.DecodeRuneInString(v[i:])
			list, err = m.Append(list, v[i:i+size])
			i += size
		}
		return list, err
	}
	return nil, fmt.Errorf("'%s' object is not iterable", typeName(v))
}

func (m *Meter) length(v Value) (int, error) {
	switch v := v.(type) {
	case Undefined:
		return 0, nil
	case string:
		return utf8.RuneCountInString(v), m.read(len(v))
	case List:
		return len(v), nil
	case *Dict:
		return len(v.members), nil
	}
	return 0, fmt.Errorf("object of type '%s' has no len()", typeName(v))
}

// str is Python's str(v).
func (m *Meter) str(v Value) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	w := writer{m: m}
	w.str(v)
	return w.value()
}

// str writes Python's str(v).
func (w *writer) str(v Value) {
	switch v := v.(type) {
	case string:
		w.text(v)
	case Undefined:
	default:
		w.repr(v)
	}
}

func (w *writer) repr(v Value) {
	switch v := v.(type) {
	case nil:
		w.text("None")
	case Undefined:
		w.text("Undefined")
	case bool:
		if v {
			w.text("True")
		} else {
			w.text("False")
		}
	case int64:
		w.int(v)
	case float64:
		w.text(floatText(v))
	case string:
		w.reprText(v)
	case List:
		w.container('[', ']', len(v), func(i int) {
			if i > 0 {
				w.text(", ")
			}
			w.repr(v[i])
		})
	case *Dict:
		if v.namespace { // it may have itself as a member
			w.text("<Namespace>")
			return
		}
		w.container('{', '}', len(v.members), func(i int) {
			if i > 0 {
				w.text(", ")
			}
			w.reprText(v.members[i].name)
			w.text(": ")
			w.repr(v.members[i].value)
		})
	default:
		w.text("<function>")
	}
}

// container writes the n parts of a value between two brackets.
func (w *writer) container(open, end byte, n int, part func(i int)) {
	defer w.m.outside()
	if err := w.m.inside(); err != nil && w.err == nil {
		w.err = err
	}
	w.byte(open)
	for i := 0; i < n && w.err == nil; i++ {
		if w.err = w.m.step(); w.err == nil {
			part(i)
		}
	}
	w.byte(end)
}

func (w *writer) reprText(s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	w.grow(len(s) + 2)
	w.byte(quote)
	for _, c := range s {
		switch {
		case w.err != nil:
			return
		case c == rune(quote) || c == '\\':
			w.byte('\\')
			w.rune(c)
		case c == '\n':
			w.text(`\n`)
		case c == '\r':
			w.text(`\r`)
		case c == '\t':
			w.text(`\t`)
		case c < ' ' || c == 0x7f:
			w.hex(`\x`, c, 2)
		default:
			w.rune(c)
		}
	}
	w.byte(quote)
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
		return strconv.FormatFloat(f, 'e', -1, 64) // bound: 24 digits
	}
	s := strconv.FormatFloat(f, 'f', -1, 64) // bound: 24 digits
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
