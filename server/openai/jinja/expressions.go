package jinja

import (
	"slices"
	"strconv"
)

// expression is a part of a template that has a value.
type expression interface {
	value(r *run, f *frame) (Value, error)
}

// tuple reads an expression, or several with commas between them.
func (p *parser) tuple() (expression, error) { return p.tupleOf(p.expression) }

func (p *parser) tupleOf(read func() (expression, error)) (expression, error) {
	e, err := read()
	if err != nil || !p.peek().is(tokenOperator, ",") {
		return e, err
	}
	list := listOf{e}
	for p.take(tokenOperator, ",") {
		if t := p.peek(); t.kind == tokenEnd || t.is(tokenOperator, ")") || t.is(tokenOperator, "=") {
			break
		}
		if e, err = read(); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// expression reads "a if b else c", or what binds more tightly.
func (p *parser) expression() (expression, error) {
	back, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer back()
	e, err := p.or()
	for err == nil && p.take(tokenName, "if") {
		c := &choice{yes: e}
		if c.condition, err = p.or(); err != nil {
			return nil, err
		}
		if p.take(tokenName, "else") {
			if c.no, err = p.expression(); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, err
}

// leftToRight reads operators that bind equally.
func (p *parser) leftToRight(read func() (expression, error), kind tokenKind, operators ...string) (expression, error) {
	e, err := read()
	for err == nil {
		t := p.peek()
		if t.kind != kind || !slices.Contains(operators, t.text) {
			return e, nil
		}
		p.next()
		b := &binary{operator: t.text, left: e, line: t.line}
		b.right, err = read()
		e = b
	}
	return nil, err
}

func (p *parser) or() (expression, error)  { return p.leftToRight(p.and, tokenName, "or") }
func (p *parser) and() (expression, error) { return p.leftToRight(p.not, tokenName, "and") }

func (p *parser) not() (expression, error) {
	back, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer back()
	if t := p.peek(); p.take(tokenName, "not") {
		e, err := p.not()
		return &unary{"not", e, t.line}, err
	}
	return p.compare()
}

// The operators, by how tightly they bind.
var (
	comparisons = []string{"==", "!=", "<", "<=", ">", ">="}
	sums        = []string{"+", "-"}
	joins       = []string{"~"}
	products    = []string{"*", "/", "//", "%"}
	powers      = []string{"**"}
)

// compare reads a chain of comparisons, all of which must hold.
func (p *parser) compare() (expression, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	var whole expression
	for {
		t := p.peek()
		operator := ""
		switch {
		case t.kind == tokenOperator && slices.Contains(comparisons, t.text):
			operator = t.text
			p.next()
		case p.take(tokenName, "in"):
			operator = "in"
		case t.is(tokenName, "not") && p.tokens[p.at+1].is(tokenName, "in"):
			operator = "not in"
			p.at += 2
		}
		if operator == "" {
			break
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		one := &binary{operator, left, right, t.line}
		if whole == nil {
			whole = one
		} else {
			whole = &binary{"and", whole, one, t.line}
		}
		left = right
	}
	if whole == nil {
		return left, nil
	}
	return whole, nil
}

func (p *parser) sum() (expression, error) { return p.leftToRight(p.joined, tokenOperator, sums...) }
func (p *parser) joined() (expression, error) {
	return p.leftToRight(p.product, tokenOperator, joins...)
}
func (p *parser) product() (expression, error) {
	return p.leftToRight(p.power, tokenOperator, products...)
}
func (p *parser) power() (expression, error) {
	return p.leftToRight(func() (expression, error) { return p.signed(true) }, tokenOperator, powers...)
}

// signed reads a sign, an operand, and what stands behind it.
func (p *parser) signed(filters bool) (expression, error) {
	back, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer back()
	t := p.peek()
	var e expression
	if t.is(tokenOperator, "-") || t.is(tokenOperator, "+") {
		p.next()
		if e, err = p.signed(false); err == nil {
			e = &unary{t.text, e, t.line}
		}
	} else {
		e, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	return p.filters(e)
}

func (p *parser) primary() (expression, error) {
	t := p.next()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return constant{true}, nil
		case "false", "False":
			return constant{false}, nil
		case "none", "None":
			return constant{nil}, nil
		}
		return variable(t.text), nil
	case tokenString:
		whole := t.text
		for p.peek().kind == tokenString { // neighbours are one
			whole += p.next().text
		}
		return constant{whole}, nil
	case tokenInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return nil, p.errorf("number %s is too large", t.text)
		}
		return constant{n}, nil
	case tokenFloat:
		x, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, p.errorf("number %s is too large", t.text)
		}
		return constant{x}, nil
	case tokenOperator:
		switch t.text {
		case "(":
			if p.take(tokenOperator, ")") {
				return listOf{}, nil
			}
			e, err := p.tuple()
			if err != nil {
				return nil, err
			}
			return e, p.expect(tokenOperator, ")")
		case "[":
			list, err := p.list("]")
			return listOf(list), err
		case "{":
			return p.dict()
		}
	}
	p.at--
	return nil, p.errorf("unexpected %q", t.text)
}

// list reads expressions up to a bracket.
func (p *parser) list(end string) (list []expression, err error) {
	for !p.take(tokenOperator, end) {
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if !p.take(tokenOperator, ",") && !p.peek().is(tokenOperator, end) {
			return nil, p.errorf("got %q, want a comma or %q", p.peek().text, end)
		}
	}
	return list, nil
}

func (p *parser) dict() (expression, error) {
	d := &dictOf{line: p.peek().line}
	for !p.take(tokenOperator, "}") {
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokenOperator, ":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, v)
		if !p.take(tokenOperator, ",") && !p.peek().is(tokenOperator, "}") {
			return nil, p.errorf("got %q, want a comma or \"}\"", p.peek().text)
		}
	}
	return d, nil
}

// postfix reads members, subscripts and calls behind an operand.
func (p *parser) postfix(e expression) (expression, error) {
	for {
		line := p.peek().line
		switch {
		case p.take(tokenOperator, "."):
			if t := p.peek(); t.kind == tokenInt {
				p.next()
				n, _ := strconv.ParseInt(t.text, 10, 64)
				e = &subscript{e, constant{n}, line}
				continue
			}
			name, err := p.name()
			if err != nil {
				return nil, err
			}
			e = &attribute{e, name, line}
		case p.take(tokenOperator, "["):
			var err error
			if e, err = p.subscript(e, line); err != nil {
				return nil, err
			}
		case p.peek().is(tokenOperator, "("):
			c := &call{callee: e, line: line}
			var err error
			if c.arguments, err = p.arguments(); err != nil {
				return nil, err
			}
			e = c
		default:
			return e, nil
		}
	}
}

func (p *parser) subscript(e expression, line int) (expression, error) {
	s := &slice{of: e, line: line}
	parts := []*expression{&s.from, &s.to, &s.step}
	colons := 0
	for !p.take(tokenOperator, "]") {
		if p.take(tokenOperator, ":") {
			if colons++; colons > 2 {
				return nil, p.errorf("a slice has three parts at most")
			}
			continue
		}
		one, err := p.expression()
		if err != nil {
			return nil, err
		}
		if *parts[colons] != nil {
			return nil, p.errorf("got %q, want a colon or \"]\"", p.peek().text)
		}
		*parts[colons] = one
	}
	if colons == 0 {
		if s.from == nil {
			return nil, p.errorf("a subscript is empty")
		}
		return &subscript{e, s.from, line}, nil
	}
	return s, nil
}

// arguments reads the arguments of a call with their brackets.
func (p *parser) arguments() (a argumentList, err error) {
	if err := p.expect(tokenOperator, "("); err != nil {
		return a, err
	}
	for !p.take(tokenOperator, ")") {
		if t := p.peek(); t.kind == tokenName && p.tokens[p.at+1].is(tokenOperator, "=") {
			p.at += 2
			e, err := p.expression()
			if err != nil {
				return a, err
			}
			a.names, a.named = append(a.names, t.text), append(a.named, e)
		} else {
			e, err := p.expression()
			if err != nil {
				return a, err
			}
			a.list = append(a.list, e)
		}
		if !p.take(tokenOperator, ",") && !p.peek().is(tokenOperator, ")") {
			return a, p.errorf("got %q, want a comma or \")\"", p.peek().text)
		}
	}
	return a, nil
}

// filters reads filters, tests and calls behind an operand.
func (p *parser) filters(e expression) (expression, error) {
	for {
		var err error
		switch {
		case p.take(tokenOperator, "|"):
			e, err = p.filter(e)
		case e != nil && p.take(tokenName, "is"):
			e, err = p.test(e)
		case e != nil && p.peek().is(tokenOperator, "("):
			e, err = p.postfix(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filter reads the name and the arguments of a filter. Without an operand it is applied to
// the text of a block.
func (p *parser) filter(e expression) (expression, error) {
	line := p.peek().line
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	apply := filterNamed(name)
	if apply == nil {
		return nil, p.errorf("No filter named '%s'.", name)
	}
	if e == nil {
		e = blockText{}
	}
	f := &filtered{operand: e, name: name, apply: apply, line: line}
	if p.peek().is(tokenOperator, "(") {
		f.arguments, err = p.arguments()
	}
	return f, err
}

// noOperand are names that cannot be the argument of a test.
var noOperand = []string{"else", "or", "and", "if", "is", "in", "not"}

func (p *parser) test(e expression) (expression, error) {
	t := &tested{operand: e, line: p.peek().line}
	t.negated = p.take(tokenName, "not")
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if t.holds = tests[name]; t.holds == nil {
		return nil, p.errorf("No test named '%s'.", name)
	}
	switch next := p.peek(); {
	case next.is(tokenOperator, "("):
		t.arguments, err = p.arguments()
	case next.kind == tokenName && !slices.Contains(noOperand, next.text), next.kind == tokenString, next.kind == tokenInt,
		next.kind == tokenFloat, next.is(tokenOperator, "["), next.is(tokenOperator, "{"):
		var one expression
		if one, err = p.primary(); err == nil {
			if one, err = p.postfix(one); err == nil {
				t.arguments.list = []expression{one}
			}
		}
	}
	return t, err
}
