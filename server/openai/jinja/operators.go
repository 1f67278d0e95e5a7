package jinja

import "math"

type constant struct{ v Value }

func (c constant) value(*run, *frame) Value { return c.v }

type variable string

func (v variable) value(_ *run, f *frame) Value {
	if found, ok := f.find(string(v)); ok { // bound: the template
		return found
	}
	return Undefined{noVariable, string(v)} // bound: the template
}

type listOf []expression

func (l listOf) value(r *run, f *frame) Value {
	return r.build(len(l), func(i int) Value { return r.eval(l[i], f) })
}

type dictOf struct {
	keys, values []expression
	line         int
}

func (d *dictOf) value(r *run, f *frame) Value {
	whole := r.Dict()
	for i := 0; i < len(d.keys) && r.err == nil; i++ {
		key := r.eval(d.keys[i], f)
		name, ok := key.(string)
		if !ok {
			r.failf("a key is %s, want a string", typeName(key))
			return r.atLine(d.line, nil)
		}
		r.Set(whole, name, r.eval(d.values[i], f))
	}
	return whole
}

type choice struct{ condition, yes, no expression }

func (c *choice) value(r *run, f *frame) Value {
	v := r.eval(c.condition, f)
	switch {
	case r.err != nil:
		return nil
	case truth(v):
		return c.yes.value(r, f)
	case c.no == nil:
		return Undefined{name: "the inline if-expression evaluated to false and no else section was defined."}
	}
	return c.no.value(r, f)
}

type unary struct {
	operator string
	operand  expression
	line     int
}

func (u *unary) value(r *run, f *frame) Value {
	v := r.eval(u.operand, f)
	if u.operator == "not" {
		return !truth(v)
	}
	if x, ok := v.(float64); ok {
		if u.operator == "-" {
			x = -x
		}
		return x
	}
	n, ok := asInt(v)
	if !ok {
		return r.atLine(u.line, r.failf("bad operand type for unary %s: '%s'", u.operator, typeName(v)))
	}
	if u.operator == "-" {
		n = -n
	}
	return n
}

type binary struct {
	operator    string
	left, right expression
	line        int
}

func (b *binary) value(r *run, f *frame) Value {
	x := r.eval(b.left, f)
	if b.operator == "and" && !truth(x) || b.operator == "or" && truth(x) {
		return x
	}
	y := r.eval(b.right, f)
	if r.err != nil {
		return nil
	}
	return r.atLine(b.line, r.combine(b.operator, x, y))
}

func (m *Meter) combine(operator string, x, y Value) Value {
	switch operator {
	case "and", "or":
		return y
	case "==", "!=":
		return m.equal(x, y) == (operator == "==")
	case "in", "not in":
		return m.contains(y, x) == (operator == "in")
	case "~":
		return m.joined(x, y)
	}
	if !m.defined(x, y) {
		return nil
	}
	switch operator {
	case "<":
		return m.less(x, y)
	case ">":
		return m.less(y, x)
	case "<=":
		return !m.less(y, x)
	case ">=":
		return !m.less(x, y)
	}
	return m.calculate(operator, x, y)
}

// joined concatenates the texts of values.
func (m *Meter) joined(list ...Value) string {
	w := writer{m: m}
	for _, v := range list {
		w.str(v)
	}
	return w.value()
}

// defined reports whether all operands are defined.
func (m *Meter) defined(list ...Value) bool {
	for _, v := range list {
		if u, ok := v.(Undefined); ok {
			m.Fail(u.why())
		}
	}
	return m.err == nil
}

func (m *Meter) calculate(operator string, x, y Value) Value {
	a, isInt := asInt(x)
	b, also := asInt(y)
	switch left := x.(type) {
	case string:
		right, isText := y.(string)
		switch {
		case operator == "+" && isText:
			return m.joined(left, right)
		case operator == "*" && also:
			return m.times(left, b)
		case operator == "%":
			return m.formatted(left, y)
		}
		return m.unsupported(operator, x, y)
	case List:
		right, isList := y.(List)
		if operator != "+" || !isList {
			return m.unsupported(operator, x, y)
		}
		whole := m.list(len(left) + len(right))
		if whole == nil {
			return nil
		}
		return append(append(whole, left...), right...) // bound: there is room
	}
	if s, ok := y.(string); ok && operator == "*" && isInt {
		return m.times(s, a)
	}
	if isInt && also && operator != "/" {
		return m.integers(operator, a, b)
	}
	c, isNumber := asFloat(x)
	d, also := asFloat(y)
	if !isNumber || !also {
		return m.unsupported(operator, x, y)
	}
	return m.floats(operator, c, d)
}

func (m *Meter) unsupported(operator string, x, y Value) Value {
	return m.failf("unsupported operand type(s) for %s: '%s' and '%s'", operator, typeName(x), typeName(y))
}

func (m *Meter) times(s string, n int64) Value {
	n = max(n, 0)
	if n > 0 && int64(len(s)) > math.MaxInt32/n {
		return m.failf("a text is repeated too often")
	}
	return m.repeated(s, int(n))
}

const noDivision = "division by zero"

// integers rounds down, as Python does.
func (m *Meter) integers(operator string, a, b int64) Value {
	switch operator {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		if b < 0 {
			return math.Pow(float64(a), float64(b))
		}
		result := int64(1)
		for ; b > 0; b >>= 1 {
			if b&1 == 1 {
				result *= a
			}
			a *= a
		}
		return result
	}
	if b == 0 {
		return m.failf(noDivision)
	}
	quotient, rest := a/b, a%b
	if rest != 0 && (rest < 0) != (b < 0) {
		quotient--
		rest += b
	}
	if operator == "//" {
		return quotient
	}
	return rest
}

func (m *Meter) floats(operator string, a, b float64) Value {
	switch operator {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		return math.Pow(a, b)
	}
	if b == 0 {
		return m.failf(noDivision)
	}
	switch operator {
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	}
	return a - b*math.Floor(a/b)
}

// argumentList has the arguments of a call as expressions.
type argumentList struct {
	list  []expression
	names []string
	named []expression
}

func (l *argumentList) value(r *run, f *frame) *arguments {
	a := &arguments{m: r.Meter}
	for _, e := range l.list {
		a.list = append(a.list, r.eval(e, f)) // bound: the template
	}
	for i, e := range l.named {
		a.named = append(a.named, member{l.names[i], r.eval(e, f)}) // bound: the template
	}
	return a
}

type call struct {
	callee    expression
	arguments argumentList
	line      int
}

func (c *call) value(r *run, f *frame) Value {
	callee := r.eval(c.callee, f)
	do, ok := callee.(function)
	if !ok {
		if r.defined(callee) {
			r.failf("'%s' object is not callable", typeName(callee))
		}
		return r.atLine(c.line, nil)
	}
	a := c.arguments.value(r, f)
	if r.depth++; r.depth > maxDepth {
		r.failf("calls nest too deeply")
	}
	var v Value
	if r.err == nil {
		v = do(r, a)
	}
	r.depth--
	return r.atLine(c.line, v)
}

// applied is a filter or a test of an operand.
type applied struct {
	operand   expression
	apply     filter
	arguments argumentList
	line      int
}

func (e *applied) value(r *run, f *frame) Value {
	v := r.eval(e.operand, f)
	a := e.arguments.value(r, f)
	if r.err != nil {
		return nil
	}
	return r.atLine(e.line, e.apply(r, v, a))
}
