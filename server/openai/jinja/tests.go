package jinja

import (
	"fmt"
	"strings"
	"unicode"
)

// test says whether something holds of a value.
type test func(m *Meter, v Value, a *arguments) (bool, error)

// is makes a test of a function on values alone.
func is(holds func(v Value) bool) test {
	return func(_ *Meter, v Value, _ *arguments) (bool, error) { return holds(v), nil }
}

// than makes a test of a comparison with an argument.
func than(operator string) test {
	return func(m *Meter, v Value, a *arguments) (bool, error) {
		other, ok := a.at(0, "other")
		if !ok {
			return false, fmt.Errorf("the test %s has no argument", operator)
		}
		holds, err := (&run{Meter: m}).combine(operator, v, other)
		return err == nil && holds.(bool), err
	}
}

// ofCase makes a test of a text with letters, which a change of case leaves as they are.
func ofCase(change func(rune) rune) test {
	return func(m *Meter, v Value, _ *arguments) (bool, error) {
		s, err := m.str(v)
		if err != nil {
			return false, err
		}
		same := strings.IndexFunc(s, func(c rune) bool { return change(c) != c }) < 0
		return same && strings.IndexFunc(s, unicode.IsLetter) >= 0, m.read(len(s))
	}
}

func remainder(v Value, by int64) (int64, error) {
	n, ok := asInt(v)
	if !ok || by == 0 {
		return 0, fmt.Errorf("%s cannot be divided by %d", typeName(v), by)
	}
	rest := n % by
	if rest != 0 && (rest < 0) != (by < 0) {
		rest += by
	}
	return rest, nil
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
	"boolean":  is(func(v Value) bool { _, ok := v.(bool); return ok }),
	"callable": is(func(v Value) bool { _, ok := v.(function); return ok }),
	"defined":  is(func(v Value) bool { _, ok := v.(Undefined); return !ok }),
	"divisibleby": func(_ *Meter, v Value, a *arguments) (bool, error) {
		by, _ := a.at(0, "num")
		n, _ := asInt(by)
		rest, err := remainder(v, n)
		return err == nil && rest == 0, err
	},
	"==": than("=="), "eq": than("=="), "equalto": than("=="), "ne": than("!="), "!=": than("!="),
	"ge": than(">="), ">=": than(">="), "gt": than(">"), ">": than(">"), "greaterthan": than(">"),
	"le": than("<="), "<=": than("<="), "lt": than("<"), "<": than("<"), "lessthan": than("<"), "in": than("in"),
	"even": func(_ *Meter, v Value, _ *arguments) (bool, error) {
		rest, err := remainder(v, 2)
		return err == nil && rest == 0, err
	},
	"false":    is(func(v Value) bool { b, ok := v.(bool); return ok && !b }),
	"float":    is(func(v Value) bool { _, ok := v.(float64); return ok }),
	"integer":  is(func(v Value) bool { _, ok := v.(int64); return ok }),
	"iterable": is(isSequence),
	"lower":    ofCase(unicode.ToLower),
	"mapping":  is(isMapping),
	"none":     is(func(v Value) bool { return v == nil }),
	"number":   is(func(v Value) bool { _, ok := asFloat(v); return ok }),
	"odd": func(_ *Meter, v Value, _ *arguments) (bool, error) {
		rest, err := remainder(v, 2)
		return err == nil && rest == 1, err
	},
	"sameas": func(m *Meter, v Value, a *arguments) (bool, error) {
		other, _ := a.at(0, "other")
		same, err := m.equal(v, other)
		return same && typeName(v) == typeName(other), err
	},
	"sequence":  is(isSequence),
	"string":    is(func(v Value) bool { _, ok := v.(string); return ok }),
	"true":      is(func(v Value) bool { b, ok := v.(bool); return ok && b }),
	"undefined": is(func(v Value) bool { _, ok := v.(Undefined); return ok }),
	"upper":     ofCase(unicode.ToUpper),
}
