package jinja

type attribute struct {
	of   expression
	name string
	line int
}

func (a *attribute) value(r *run, f *frame) Value {
	return r.atLine(a.line, r.memberOf(r.eval(a.of, f), a.name))
}

// memberOf returns a method of a value or, if it has none of that name, an item.
func (m *Meter) memberOf(of Value, name string) Value {
	if f, ok := method(of, name); ok {
		return f
	}
	switch of := of.(type) {
	case Undefined:
		m.Fail(of.why())
		return nil
	case *Dict:
		if v, ok := of.member(name); ok {
			return v
		}
	case *position:
		if v, ok := of.member(name); ok {
			return v
		}
	}
	return Undefined{typeName(of), name}
}

type subscript struct {
	of, at expression
	line   int
}

func (s *subscript) value(r *run, f *frame) Value {
	of := r.eval(s.of, f)
	return r.atLine(s.line, r.item(of, r.eval(s.at, f)))
}

// item returns an item of a value or, if it has none of that name, a method.
func (m *Meter) item(of, at Value) Value {
	if name, ok := at.(string); ok {
		if d, ok := of.(*Dict); ok {
			if v, ok := d.member(name); ok {
				return v
			}
		}
		return m.memberOf(of, name)
	}
	if !m.defined(of) {
		return nil
	}
	none := Undefined{typeName(of), "element"}
	list, isList := of.(List)
	text, isText := of.(string)
	i, ok := asInt(at)
	if !ok || !isList && !isText {
		return none
	}
	n := int64(m.length(of))
	if i < 0 {
		i += n
	}
	switch {
	case i < 0 || i >= n:
		return none
	case isList:
		return list[i]
	}
	from := runes(text, int(i))
	return text[from : from+runes(text[from:], 1)]
}

// runes returns the length of the first n characters of s, in bytes.
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

func (s *slice) value(r *run, f *frame) Value {
	of := r.eval(s.of, f)
	var bounds [3]*int64
	for i, e := range []expression{s.from, s.to, s.step} {
		if e == nil {
			continue
		}
		v := r.eval(e, f)
		if v == nil {
			continue
		}
		n, ok := asInt(v)
		if !ok {
			r.failf("slice indices must be integers or None")
		}
		bounds[i] = &n
	}
	return r.atLine(s.line, r.cut(of, bounds))
}

// cut is Python's of[from:to:step].
func (m *Meter) cut(of Value, bounds [3]*int64) Value {
	text, isText := of.(string)
	list, isList := of.(List)
	if !m.defined(of) || !isText && !isList {
		return m.failf("'%s' object is not subscriptable", typeName(of))
	}
	n, step := int64(m.length(of)), int64(1)
	if bounds[2] != nil {
		step = min(max(*bounds[2], -n-1), n+1)
	}
	if step == 0 {
		return m.failf("slice step cannot be zero")
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(bound *int64, otherwise int64) int64 {
		if bound == nil {
			return otherwise
		}
		at := *bound
		if at < 0 {
			at += n
		}
		return min(max(at, low), high)
	}
	from, to := clamp(bounds[0], low), clamp(bounds[1], high)
	if step < 0 {
		from, to = clamp(bounds[0], high), clamp(bounds[1], low)
	}
	if isText && step == 1 {
		start := runes(text, int(from))
		return text[start : start+runes(text[start:], int(to-from))]
	}
	if isText {
		list = m.items(text)
	}
	size := (to - from + step - step/max(step, -step)) / step
	part := m.build(int(max(size, 0)), func(i int) Value { return list[from+int64(i)*step] })
	if isText {
		return m.joined(part...)
	}
	return part
}
