package jinja

import (
	"errors"
	"fmt"
	"strings"
)

// globals are what each template can call.
var globals = &frame{kept: true, names: []member{
	{"range", function(callRange)},
	{"dict", function(func(r *run, a *arguments) (Value, error) { return r.dictFrom(a, false) })},
	{"namespace", function(func(r *run, a *arguments) (Value, error) { return r.dictFrom(a, true) })},
	{"raise_exception", function(callRaise)},
	{"strftime_now", function(callTime)},
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
	if step > 0 && from >= to || step < 0 && from <= to {
		return r.list(0)
	}
	distance, stride := uint64(to)-uint64(from), uint64(step)
	if step < 0 {
		distance, stride = uint64(from)-uint64(to), -uint64(step)
	}
	count := (distance-1)/stride + 1
	if count > mostRange {
		return nil, fmt.Errorf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", mostRange)
	}
	list, err := r.list(int(count))
	for i := range int64(count) {
		if err != nil {
			return nil, err
		}
		list, err = r.Append(list, from+i*step)
	}
	return list, err
}

// dictFrom makes a dict of named arguments, and perhaps of one that is a dict.
func (m *Meter) dictFrom(a *arguments, namespace bool) (Value, error) {
	d, err := m.Dict()
	if err != nil {
		return nil, err
	}
	d.namespace = namespace
	members := a.named
	if len(a.list) > 0 {
		from, ok := a.list[0].(*Dict)
		if !ok {
			return nil, fmt.Errorf("'%s' object is not a dict", typeName(a.list[0]))
		}
		for _, one := range from.members {
			if err := m.Set(d, one.name, one.value); err != nil {
				return nil, err
			}
		}
	}
	for _, one := range members {
		if err := m.Set(d, one.name, one.value); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func callRaise(r *run, a *arguments) (Value, error) {
	message, err := a.text(r.Meter, 0, "message", "")
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{message}
}

// layouts are those of strftime's directives.
var layouts = map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'B': "January",
	'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'Z': "MST", 'z': "-0700", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04"}

// callTime is strftime with the directives that have one form in every place of the world.
func callTime(r *run, a *arguments) (Value, error) {
	now := r.limits.Now()
	format, err := a.text(r.Meter, 0, "format", "")
	if err != nil {
		return nil, err
	}
	w := writer{m: r.Meter}
	for i := 0; i < len(format) && w.err == nil; i++ {
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
			return nil, fmt.Errorf("strftime_now does not know %%%c", format[i])
		}
		s := now.Format(layout) // bound: the layouts
		if strip {
			s = strings.TrimLeft(s, "0 ")
		}
		w.text(s)
	}
	return w.value()
}
