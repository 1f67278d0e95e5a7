package jinja

import (
	"errors"
	"fmt"
	"math"
)

type constant struct{ v Value }

func (c constant) value(*run, *frame) (Value, error) { return c.v, nil }

type variable string

func (v variable) value(_ *run, f *frame) (Value, error) {
	if found, ok := f.find(string(v)); ok { // bound: the template
		return found, nil
	}
	return Undefined{noVariable, string(v)}, nil // bound: the template
}

type listOf []expression

func (l listOf) value(r *run, f *frame) (Value, error) {
	list, err := r.list(len(l))
	for _, e := range l {
		if err != nil {
			return nil, err
		}
		var v Value
		if v, err = r.eval(e, f); err == nil {
			list, err = r.Append(list, v)
		}
	}
	return list, err
}

type dictOf struct {
	keys, values []expression
	line         int
}

func (d *dictOf) value(r *run, f *frame) (Value, error) {
	whole, err := r.Dict()
	if err != nil {
		return nil, err
	}
	for i := range d.keys {
		key, err := r.eval(d.keys[i], f)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, atLine(fmt.Errorf("a key is %s, want a string", typeName(key)), d.line)
		}
		v, err := r.eval(d.values[i], f)
		if err != nil {
			return nil, err
		}
		if err := r.Set(whole, name, v); err != nil {
			return nil, err
		}
	}
	return whole, nil
}

// eval counts a step and evaluates e.
func (r *run) eval(e expression, f *frame) (Value, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	return e.value(r, f)
}

type choice struct{ condition, yes, no expression }

func (c *choice) value(r *run, f *frame) (Value, error) {
	v, err := r.eval(c.condition, f)
	if err != nil {
		return nil, err
	}
	switch {
	case truth(v):
		return c.yes.value(r, f)
	case c.no == nil:
		return Undefined{name: "the inline if-expression evaluated to false and no else section was defined."}, nil
	}
	return c.no.value(r, f)
}

type unary struct {
	operator string
	operand  expression
	line     int
}

func (u *unary) value(r *run, f *frame) (Value, error) {
	v, err := r.eval(u.operand, f)
	if err != nil {
		return nil, err
	}
	if u.operator == "not" {
		return !truth(v), nil
	}
	if x, ok := v.(float64); ok {
		if u.operator == "-" {
			x = -x
		}
		return x, nil
	}
	n, ok := asInt(v)
	if !ok {
		return nil, atLine(fmt.Errorf("bad operand type for unary %s: '%s'", u.operator, typeName(v)), u.line)
	}
	if u.operator == "-" {
		n = -n
	}
	return n, nil
}

type binary struct {
	operator    string
	left, right expression
	line        int
}

func (b *binary) value(r *run, f *frame) (Value, error) {
	x, err := r.eval(b.left, f)
	if err != nil {
		return nil, err
	}
	switch {
	case b.operator == "and" && !truth(x), b.operator == "or" && truth(x):
		return x, nil
	}
	y, err := r.eval(b.right, f)
	if err != nil {
		return nil, err
	}
	v, err := r.combine(b.operator, x, y)
	return v, atLine(err, b.line)
}

func (r *run) combine(operator string, x, y Value) (v Value, err error) {
	swapped, negated := false, false
	switch operator {
	case "and", "or":
		return y, nil
	case "==", "!=":
		same, err := r.equal(x, y)
		return same == (operator == "=="), err
	case "in", "not in":
		in, err := r.contains(y, x)
		return in == (operator == "in"), err
	case "~":
		return r.joined(x, y)
	case "<":
	case ">":
		swapped = true
	case "<=":
		swapped, negated = true, true
	case ">=":
		negated = true
	default:
		return r.calculate(operator, x, y)
	}
	if err := defined(x, y); err != nil {
		return nil, err
	}
	if swapped {
		x, y = y, x
	}
	is, err := r.less(x, y)
	return is != negated, err
}

// joined returns the texts of values as one.
func (r *run) joined(list ...Value) (Value, error) {
	w := writer{m: r.Meter}
	for _, v := range list {
		w.str(v)
	}
	return w.value()
}

// defined refuses undefined operands.
func defined(list ...Value) error {
	for _, v := range list {
		if u, ok := v.(Undefined); ok {
			return u.why()
		}
	}
	return nil
}

func (r *run) calculate(operator string, x, y Value) (Value, error) {
	if err := defined(x, y); err != nil {
		return nil, err
	}
	if s, ok := x.(string); ok {
		switch t, isText := y.(string); {
		case operator == "+" && isText:
			return r.joined(s, t)
		case operator == "*":
			if n, ok := asInt(y); ok {
				return r.times(s, n)
			}
		case operator == "%":
			return r.formatted(s, y)
		}
		return nil, unsupported(operator, x, y)
	}
	if list, ok := x.(List); ok {
		if more, ok := y.(List); ok && operator == "+" {
			whole, err := r.list(len(list) + len(more))
			if err != nil {
				return nil, err
			}
			return append(append(whole, list...), more...), nil // bound: there is room
		}
		return nil, unsupported(operator, x, y)
	}
	if s, ok := y.(string); ok && operator == "*" {
		if n, ok := asInt(x); ok {
			return r.times(s, n)
		}
	}
	a, isInt := asInt(x)
	b, also := asInt(y)
	if isInt && also && operator != "/" {
		return integers(operator, a, b)
	}
	c, isNumber := asFloat(x)
	d, also := asFloat(y)
	if !isNumber || !also {
		return nil, unsupported(operator, x, y)
	}
	return floats(operator, c, d)
}

func unsupported(operator string, x, y Value) error {
	return fmt.Errorf("unsupported operand type(s) for %s: '%s' and '%s'", operator, typeName(x), typeName(y))
}

func (r *run) times(s string, n int64) (Value, error) {
	n = max(n, 0)
	if n > 0 && int64(len(s)) > math.MaxInt32/n {
		return nil, errors.New("a text is repeated too often")
	}
	return r.repeated(s, int(n))
}

var errDivision = errors.New("division by zero")

// integers rounds down, as Python does.
func integers(operator string, a, b int64) (Value, error) {
	switch operator {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		if b < 0 {
			return math.Pow(float64(a), float64(b)), nil
		}
		result := int64(1)
		for ; b > 0; b >>= 1 {
			if b&1 == 1 {
				result *= a
			}
			a *= a
		}
		return result, nil
	}
	if b == 0 {
		return nil, errDivision
	}
	quotient, rest := a/b, a%b
	if rest != 0 && (rest < 0) != (b < 0) {
		quotient--
		rest += b
	}
	if operator == "//" {
		return quotient, nil
	}
	return rest, nil
}

func floats(operator string, a, b float64) (Value, error) {
	switch operator {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		return math.Pow(a, b), nil
	}
	if b == 0 {
		return nil, errDivision
	}
	switch operator {
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	}
	return a - b*math.Floor(a/b), nil
}

// argumentList has the arguments of a call as they are written.
type argumentList struct {
	list  []expression
	names []string
	named []expression
}

func (l *argumentList) value(r *run, f *frame) (*arguments, error) {
	a := &arguments{}
	for _, e := range l.list {
		v, err := r.eval(e, f)
		if err != nil {
			return nil, err
		}
		a.list = append(a.list, v) // bound: the template
	}
	for i, e := range l.named {
		v, err := r.eval(e, f)
		if err != nil {
			return nil, err
		}
		a.named = append(a.named, member{l.names[i], v}) // bound: the template
	}
	return a, nil
}

type call struct {
	callee    expression
	arguments argumentList
	line      int
}

func (c *call) value(r *run, f *frame) (Value, error) {
	callee, err := r.eval(c.callee, f)
	if err != nil {
		return nil, err
	}
	do, ok := callee.(function)
	if !ok {
		if err := defined(callee); err != nil {
			return nil, atLine(err, c.line)
		}
		return nil, atLine(fmt.Errorf("'%s' object is not callable", typeName(callee)), c.line)
	}
	a, err := c.arguments.value(r, f)
	if err != nil {
		return nil, err
	}
	if r.depth++; r.depth > maxDepth {
		return nil, atLine(errors.New("calls nest too deeply"), c.line)
	}
	v, err := do(r, a)
	r.depth--
	return v, atLine(err, c.line)
}

type filtered struct {
	operand   expression
	name      string
	apply     filter
	arguments argumentList
	line      int
}

func (e *filtered) value(r *run, f *frame) (Value, error) {
	v, err := r.eval(e.operand, f)
	if err != nil {
		return nil, err
	}
	a, err := e.arguments.value(r, f)
	if err != nil {
		return nil, err
	}
	v, err = e.apply(r, v, a)
	return v, atLine(err, e.line)
}

type tested struct {
	operand   expression
	holds     test
	negated   bool
	arguments argumentList
	line      int
}

func (e *tested) value(r *run, f *frame) (Value, error) {
	v, err := r.eval(e.operand, f)
	if err != nil {
		return nil, err
	}
	a, err := e.arguments.value(r, f)
	if err != nil {
		return nil, err
	}
	holds, err := e.holds(r.Meter, v, a)
	return holds != e.negated, atLine(err, e.line)
}
