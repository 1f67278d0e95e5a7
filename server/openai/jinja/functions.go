package jinja

import (
	"errors"
	"fmt"
	"strings"
)

// globals are what each template can call.
var globals = &frame{names: map[string]Value{
	"range":           function(callRange),
	"dict":            function(func(_ *run, a *arguments) (Value, error) { return dictFrom(a, false) }),
	"namespace":       function(func(_ *run, a *arguments) (Value, error) { return dictFrom(a, true) }),
	"raise_exception": function(callRaise),
	"strftime_now":    function(callTime),
}}

// mostRange bounds a range, as Jinja does in its sandbox.
const mostRange = 100_000

func callRange(r *run, a *arguments) (Value, error) {
	var n [3]int64
	n[2] = 1
	if len(a.list) < 1 || len(a.list) > 3 {
		return nil, fmt.Errorf("range expected 1 to 3 arguments, got %d", len(a.list))
	}
	for i, v := range a.list {
		var ok bool
		if n[i], ok = asInt(v); !ok {
			return nil, fmt.Errorf("'%s' object cannot be interpreted as an integer", typeName(v))
		}
	}
	if len(a.list) == 1 {
		n[0], n[1] = 0, n[0]
	}
	from, to, step := n[0], n[1], n[2]
	if step == 0 {
		return nil, errors.New("range() arg 3 must not be zero")
	}
	list := List{}
	for i := from; step > 0 && i < to || step < 0 && i > to; {
		if len(list) >= mostRange {
			return nil, fmt.Errorf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", mostRange)
		}
		list = append(list, i)
		last := i
		if i += step; (i > last) != (step > 0) {
			break // beyond the largest number
		}
	}
	return list, r.spend(16 * len(list))
}

// dictFrom makes a dict of named arguments, and perhaps of one that is a dict.
func dictFrom(a *arguments, namespace bool) (Value, error) {
	d := &Dict{namespace: namespace}
	if len(a.list) > 0 {
		from, ok := a.list[0].(*Dict)
		if !ok {
			return nil, fmt.Errorf("'%s' object is not a dict", typeName(a.list[0]))
		}
		for _, name := range from.names {
			d.Set(name, from.values[name])
		}
	}
	for _, name := range a.order {
		d.Set(name, a.named[name])
	}
	return d, nil
}

func callRaise(_ *run, a *arguments) (Value, error) {
	return nil, &RaisedError{a.text(0, "message", "")}
}

// callTime is strftime with the directives that have one form in every place of the world.
func callTime(r *run, a *arguments) (Value, error) {
	layouts := map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'B': "January",
		'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'Z': "MST", 'z': "-0700", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04"}
	now := r.limits.Now()
	format := a.text(0, "format", "")
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		strip := format[i] == '-' && i+1 < len(format)
		if strip {
			i++
		}
		layout, known := layouts[format[i]]
		switch {
		case format[i] == '%':
			b.WriteByte('%')
			continue
		case !known:
			return nil, fmt.Errorf("strftime_now does not know %%%c", format[i])
		}
		s := now.Format(layout)
		if strip {
			s = strings.TrimLeft(s, "0 ")
		}
		b.WriteString(s)
	}
	return r.made(b.String())
}
