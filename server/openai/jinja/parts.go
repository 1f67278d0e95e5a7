package jinja

import (
	"errors"
	"fmt"
)

type attribute struct {
	of   expression
	name string
	line int
}

func (a *attribute) value(r *run, f *frame) (Value, error) {
	of, err := r.eval(a.of, f)
	if err != nil {
		return nil, err
	}
	v, err := memberOf(of, a.name)
	return v, atLine(err, a.line)
}

// memberOf returns a method of a value or, if it has none of that name, an item.
func memberOf(of Value, name string) (Value, error) {
	if m, ok := method(of, name); ok {
		return m, nil
	}
	switch of := of.(type) {
	case Undefined:
		return nil, of.why()
	case *Dict:
		if v, ok := of.member(name); ok {
			return v, nil
		}
	case *position:
		if v, ok := of.member(name); ok {
			return v, nil
		}
	}
	return Undefined{typeName(of), name}, nil
}

type subscript struct {
	of, at expression
	line   int
}

func (s *subscript) value(r *run, f *frame) (Value, error) {
	of, err := r.eval(s.of, f)
	if err != nil {
		return nil, err
	}
	at, err := r.eval(s.at, f)
	if err != nil {
		return nil, err
	}
	v, err := r.item(of, at)
	return v, atLine(err, s.line)
}

// item returns an item of a value or, if it has none of that name, a method.
func (m *Meter) item(of, at Value) (Value, error) {
	if name, ok := at.(string); ok {
		if d, ok := of.(*Dict); ok {
			if v, ok := d.member(name); ok {
				return v, nil
			}
		}
		return memberOf(of, name)
	}
	if u, ok := of.(Undefined); ok {
		return nil, u.why()
	}
	none := Undefined{typeName(of), "element"}
	list, isList := of.(List)
	text, isText := of.(string)
	i, ok := asInt(at)
	if !ok || !isList && !isText {
		return none, nil
	}
	n, err := m.length(of)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		i += int64(n)
	}
	switch {
	case i < 0 || i >= int64(n):
		return none, nil
	case isList:
		return list[i], nil
	}
	from := runes(text, int(i))
	return text[from : from+runes(text[from:], 1)], nil
}

// runes returns how many bytes the first n characters of s have.
func runes(s string, n int) int {
	if n <= 0 {
		return 0
	}
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

type slice struct {
	of, from, to, step expression
	line               int
}

func (s *slice) value(r *run, f *frame) (Value, error) {
	of, err := r.eval(s.of, f)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int64
	for i, e := range []expression{s.from, s.to, s.step} {
		if e == nil {
			continue
		}
		v, err := r.eval(e, f)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n, ok := asInt(v)
		if !ok {
			return nil, atLine(errors.New("slice indices must be integers or None"), s.line)
		}
		bounds[i] = &n
	}
	v, err := cut(r, of, bounds)
	return v, atLine(err, s.line)
}

// cut is Python's of[from:to:step].
func cut(r *run, of Value, bounds [3]*int64) (Value, error) {
	if err := defined(of); err != nil {
		return nil, err
	}
	text, isText := of.(string)
	list, isList := of.(List)
	if !isText && !isList {
		return nil, fmt.Errorf("'%s' object is not subscriptable", typeName(of))
	}
	length, err := r.length(of)
	if err != nil {
		return nil, err
	}
	n, step := int64(length), int64(1)
	if bounds[2] != nil {
		step = min(max(*bounds[2], -n-1), n+1)
	}
	if step == 0 {
		return nil, errors.New("slice step cannot be zero")
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	place := func(bound *int64, otherwise int64) int64 {
		if bound == nil {
			return otherwise
		}
		at := *bound
		if at < 0 {
			at += n
		}
		return min(max(at, low), high)
	}
	from, to := place(bounds[0], low), place(bounds[1], high)
	if step < 0 {
		from, to = place(bounds[0], high), place(bounds[1], low)
	}
	if isText && step == 1 {
		start := runes(text, int(from))
		return text[start : start+runes(text[start:], int(to-from))], nil
	}
	if isText {
		if list, err = r.items(text); err != nil {
			return nil, err
		}
	}
	size := (to - from + step - step/max(step, -step)) / step
	part, err := r.list(int(max(size, 0)))
	for i := from; err == nil && (step > 0 && i < to || step < 0 && i > to); i += step {
		part, err = r.Append(part, list[i])
	}
	if err != nil || !isText {
		return part, err
	}
	return r.joined(part...)
}
