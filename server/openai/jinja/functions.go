package jinja

import "strings"

// globals are the functions that every template can call.
var globals = &frame{kept: true, names: []member{
	{"range", function(callRange)},
	{"dict", function(func(r *run, a *arguments) Value { return r.dictFrom(a, false) })},
	{"namespace", function(func(r *run, a *arguments) Value { return r.dictFrom(a, true) })},
	{"raise_exception", function(callRaise)},
	{"strftime_now", function(callTime)},
}}

// mostRange bounds a range, as Jinja does in its sandbox.
const mostRange = 100_000

func callRange(r *run, a *arguments) Value {
	var n [3]int64
	n[2] = 1
	if len(a.list) < 1 || len(a.list) > 3 {
		return r.failf("range expected 1 to 3 arguments, got %d", len(a.list))
	}
	for i, v := range a.list {
		var ok bool
		if n[i], ok = asInt(v); !ok {
			return r.failf("'%s' object cannot be interpreted as an integer", typeName(v))
		}
	}
	if len(a.list) == 1 {
		n[0], n[1] = 0, n[0]
	}
	from, to, step := n[0], n[1], n[2]
	if step == 0 {
		return r.failf("range() arg 3 must not be zero")
	}
	if step > 0 && from >= to || step < 0 && from <= to {
		return r.list(0)
	}
	distance, stride := uint64(to)-uint64(from), uint64(step)
	if step < 0 {
		distance, stride = uint64(from)-uint64(to), -uint64(step)
	}
	count := (distance-1)/stride + 1
	if count > mostRange {
		return r.failf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", mostRange)
	}
	return r.build(int(count), func(i int) Value { return from + int64(i)*step })
}

// dictFrom returns a dict of an optional dict and of named arguments.
func (m *Meter) dictFrom(a *arguments, namespace bool) Value {
	d := m.Dict()
	d.namespace = namespace
	var members []member
	if len(a.list) > 0 {
		from, ok := a.list[0].(*Dict)
		if !ok {
			return m.failf("'%s' object is not a dict", typeName(a.list[0]))
		}
		members = from.members
	}
	for _, list := range [][]member{members, a.named} {
		for i := 0; i < len(list) && m.err == nil; i++ {
			m.Set(d, list[i].name, list[i].value)
		}
	}
	return d
}

func callRaise(r *run, a *arguments) Value {
	r.Fail(&RaisedError{a.text(0, "message", "")})
	return nil
}

// layouts are those of strftime's directives.
var layouts = map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'B': "January",
	'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'Z': "MST", 'z': "-0700", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04"}

// callTime is strftime with the directives that do not depend on the locale.
func callTime(r *run, a *arguments) Value {
	now := r.limits.Now()
	format := a.text(0, "format", "")
	w := writer{m: r.Meter}
	for i := 0; i < len(format) && r.err == nil; i++ {
		if format[i] != '%' || i+1 == len(format) {
			w.byte(format[i])
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
			w.byte('%')
			continue
		case !known:
			return r.failf("strftime_now does not know %%%c", format[i])
		}
		s := now.Format(layout) // bound: the layouts
		if strip {
			s = strings.TrimLeft(s, "0 ")
		}
		w.text(s)
	}
	return w.value()
}
