package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is nil (None), Undefined, bool, int64, float64, string, List, *Dict, or a value that only
// templates create, such as a function.
type Value any

// Undefined is the value of a name that has not been set. Without of, name is the whole reason.
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

// brief shortens a text for an error.
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

// indexFrom is the number of members from which on a dict has an index.
const indexFrom = 16

// find returns the index of a member, or -1.
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

// function is a callable value.
type function func(r *run, a *arguments) Value

// arguments of a call, a filter or a test.
type arguments struct {
	m     *Meter
	list  []Value
	named []member
}

// at returns an argument by its position or its name.
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

// value returns an argument, or nil if it is absent.
func (a *arguments) value(i int, name string) Value {
	v, _ := a.at(i, name)
	return v
}

// truth reports whether an argument is present and true.
func (a *arguments) truth(i int, name string) bool { return truth(a.value(i, name)) }

func (a *arguments) text(i int, name, otherwise string) string {
	if v := a.value(i, name); v != nil {
		return a.m.str(v)
	}
	return otherwise
}

func (a *arguments) int(i int, name string, otherwise int) int {
	v := a.value(i, name)
	if v == nil {
		return otherwise
	}
	n, ok := asInt(v)
	if !ok || n > math.MaxInt32 || n < math.MinInt32 {
		a.m.failf("argument %s is %s, want an integer", name, typeName(v))
		return otherwise
	}
	return int(n)
}

// typeName returns the name of a value's type in Python.
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

// asInt returns a whole number. Booleans are numbers, as in Python.
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

func (m *Meter) equal(a, b Value) bool {
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
		return ok && len(a) == len(t) && m.read(len(a)) && a == t
	case List:
		t, ok := b.(List)
		return ok && len(a) == len(t) && m.all(len(a), func(i int) bool { return m.equal(a[i], t[i]) })
	case *Dict:
		t, ok := b.(*Dict)
		if a.namespace || ok && t.namespace {
			return a == t
		}
		return ok && len(a.members) == len(t.members) && m.all(len(a.members), func(i int) bool {
			other, ok := t.member(a.members[i].name)
			return ok && m.equal(a.members[i].value, other)
		})
	}
	return false
}

// all reports whether n parts of a value hold.
func (m *Meter) all(n int, holds func(i int) bool) bool {
	defer m.outside()
	ok := m.inside()
	for i := 0; i < n && ok; i++ {
		ok = m.step() && holds(i)
	}
	return ok
}

// less compares two numbers, texts or lists.
func (m *Meter) less(a, b Value) bool {
	x, isNumber := asFloat(a)
	y, another := asFloat(b)
	if isNumber && another {
		return x < y
	}
	switch a := a.(type) {
	case string:
		if t, ok := b.(string); ok {
			return m.read(min(len(a), len(t))) && a < t
		}
	case List:
		if t, ok := b.(List); ok {
			return m.lessLists(a, t)
		}
	}
	m.failf("'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
	return false
}

func (m *Meter) lessLists(a, b List) bool {
	defer m.outside()
	m.inside()
	for i := range min(len(a), len(b)) {
		if !m.step() {
			return false
		}
		if !m.equal(a[i], b[i]) {
			return m.less(a[i], b[i])
		}
	}
	return len(a) < len(b)
}

// index returns the position of v in a list, or -1.
func (m *Meter) index(l List, v Value) int {
	for i, e := range l {
		if !m.step() {
			break
		}
		if m.equal(e, v) {
			return i
		}
	}
	return -1
}

// contains is Python's "v in whole".
func (m *Meter) contains(whole, v Value) bool {
	switch whole := whole.(type) {
	case Undefined:
		return false
	case string:
		if s, ok := v.(string); ok {
			return m.read(len(whole)) && strings.Contains(whole, s)
		}
		m.failf("'in <string>' requires string as left operand, not %s", typeName(v))
		return false
	case List:
		return m.index(whole, v) >= 0
	case *Dict:
		name, ok := v.(string)
		return ok && whole.find(name) >= 0
	}
	m.failf("argument of type '%s' is not iterable", typeName(whole))
	return false
}

// items returns the values over which a loop iterates.
func (m *Meter) items(v Value) List {
	switch v := v.(type) {
	case Undefined:
		return nil
	case List:
		return v
	case *Dict:
		return m.build(len(v.members), func(i int) Value { return v.members[i].name })
	case string:
		return m.build(m.length(v), func(int) Value {
			_, size := utf8.DecodeRuneInString(v)
			first := v[:size]
			v = v[size:]
			return first
		})
	}
	m.failf("'%s' object is not iterable", typeName(v))
	return nil
}

func (m *Meter) length(v Value) int {
	switch v := v.(type) {
	case Undefined:
		return 0
	case string:
		if !m.read(len(v)) {
			return 0
		}
		return utf8.RuneCountInString(v)
	case List:
		return len(v)
	case *Dict:
		return len(v.members)
	}
	m.failf("object of type '%s' has no len()", typeName(v))
	return 0
}

// str is Python's str(v).
func (m *Meter) str(v Value) string {
	if s, ok := v.(string); ok {
		return s
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

// repr writes Python's repr(v).
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
		if v.namespace { // it may contain itself
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
	w.m.inside()
	w.byte(open)
	for i := 0; i < n && w.m.step(); i++ {
		part(i)
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
		case w.m.err != nil:
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

// floatText formats a number as Python does.
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
