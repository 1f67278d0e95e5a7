package jinja

import (
	"strings"
	"unicode"
)

// test reports whether a value has a property.
type test func(v Value, a *arguments) bool

// is returns a test without arguments.
func is(holds func(v Value) bool) test {
	return func(v Value, _ *arguments) bool { return holds(v) }
}

// than returns the test that compares with an argument.
func than(operator string) test {
	return func(v Value, a *arguments) bool {
		other, ok := a.at(0, "other")
		if !ok {
			a.m.failf("the test %s has no argument", operator)
			return false
		}
		holds, _ := a.m.combine(operator, v, other).(bool)
		return holds
	}
}

// ofCase returns the test that a text has letters and does not differ from itself in that case.
func ofCase(change func(rune) rune) test {
	return func(v Value, a *arguments) bool {
		s := a.m.str(v)
		a.m.read(len(s))
		same := strings.IndexFunc(s, func(c rune) bool { return change(c) != c }) < 0
		return same && strings.IndexFunc(s, unicode.IsLetter) >= 0
	}
}

// leaves returns the test that the division by a number leaves a remainder.
func leaves(remainder, by int64) test {
	return func(v Value, a *arguments) bool { return a.m.remainder(v, by) == remainder }
}

func (m *Meter) remainder(v Value, by int64) int64 {
	n, ok := asInt(v)
	if !ok || by == 0 {
		m.failf("%s cannot be divided by %d", typeName(v), by)
		return -1
	}
	rest := n % by
	if rest != 0 && (rest < 0) != (by < 0) {
		rest += by
	}
	return rest
}

func isType[T any](v Value) bool {
	_, ok := v.(T)
	return ok
}

func isMapping(v Value) bool {
	d, ok := v.(*Dict)
	return ok && !d.namespace
}

func isSequence(v Value) bool {
	switch v.(type) {
	case string, List, *Dict, Undefined:
		return true
	}
	return false
}

var tests = map[string]test{
	"boolean":  is(isType[bool]),
	"callable": is(isType[function]),
	"defined":  is(func(v Value) bool { return !isType[Undefined](v) }),
	"divisibleby": func(v Value, a *arguments) bool {
		by, _ := asInt(a.value(0, "num"))
		return a.m.remainder(v, by) == 0
	},
	"==": than("=="), "eq": than("=="), "equalto": than("=="), "ne": than("!="), "!=": than("!="),
	"ge": than(">="), ">=": than(">="), "gt": than(">"), ">": than(">"), "greaterthan": than(">"),
	"le": than("<="), "<=": than("<="), "lt": than("<"), "<": than("<"), "lessthan": than("<"), "in": than("in"),
	"even":     leaves(0, 2),
	"false":    is(func(v Value) bool { return v == false }),
	"float":    is(isType[float64]),
	"integer":  is(isType[int64]),
	"iterable": is(isSequence),
	"lower":    ofCase(unicode.ToLower),
	"mapping":  is(isMapping),
	"none":     is(func(v Value) bool { return v == nil }),
	"number":   is(func(v Value) bool { return isType[float64](v) || isType[int64](v) || isType[bool](v) }),
	"odd":      leaves(1, 2),
	"sameas": func(v Value, a *arguments) bool {
		other := a.value(0, "other")
		return a.m.equal(v, other) && typeName(v) == typeName(other)
	},
	"sequence":  is(isSequence),
	"string":    is(isType[string]),
	"true":      is(func(v Value) bool { return v == true }),
	"undefined": is(isType[Undefined]),
	"upper":     ofCase(unicode.ToUpper),
}
