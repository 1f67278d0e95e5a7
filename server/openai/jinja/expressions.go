package jinja

import (
	"slices"
	"strconv"
)

// expression is a part of a template that has a value.
type expression interface {
	value(r *run, f *frame) Value
}

// tuple reads an expression, or several that are separated by commas.
func (p *parser) tuple() expression { return p.tupleOf(p.expression) }

func (p *parser) tupleOf(read func() expression) expression {
	e := read()
	if !p.peek().is(tokenOperator, ",") {
		return e
	}
	list := listOf{e}
	for p.take(tokenOperator, ",") {
		if t := p.peek(); t.kind == tokenEnd || t.is(tokenOperator, ")") || t.is(tokenOperator, "=") {
			break
		}
		list = append(list, read())
	}
	return list
}

// expression reads "a if b else c", or an operator that binds more tightly.
func (p *parser) expression() expression {
	defer p.deeper()()
	e := p.or()
	for p.take(tokenName, "if") {
		c := &choice{yes: e, condition: p.or()}
		if p.take(tokenName, "else") {
			c.no = p.expression()
		}
		e = c
	}
	return e
}

// leftToRight reads operators of equal precedence.
func (p *parser) leftToRight(read func() expression, kind tokenKind, operators ...string) expression {
	e := read()
	for {
		t := p.peek()
		if t.kind != kind || !slices.Contains(operators, t.text) {
			return e
		}
		p.next()
		e = &binary{operator: t.text, left: e, right: read(), line: t.line}
	}
}

// The operators, by their precedence.
var (
	comparisons = []string{"==", "!=", "<", "<=", ">", ">="}
	sums        = []string{"+", "-"}
	joins       = []string{"~"}
	products    = []string{"*", "/", "//", "%"}
	powers      = []string{"**"}
)

func (p *parser) or() expression      { return p.leftToRight(p.and, tokenName, "or") }
func (p *parser) and() expression     { return p.leftToRight(p.not, tokenName, "and") }
func (p *parser) sum() expression     { return p.leftToRight(p.joined, tokenOperator, sums...) }
func (p *parser) joined() expression  { return p.leftToRight(p.product, tokenOperator, joins...) }
func (p *parser) product() expression { return p.leftToRight(p.power, tokenOperator, products...) }
func (p *parser) power() expression   { return p.leftToRight(p.operand, tokenOperator, powers...) }

// operand reads an operand with its filters and tests.
func (p *parser) operand() expression { return p.filters(p.signed()) }

func (p *parser) not() expression {
	defer p.deeper()()
	if t := p.peek(); p.take(tokenName, "not") {
		return &unary{"not", p.not(), t.line}
	}
	return p.compare()
}

// compare reads a chain of comparisons, all of which must hold.
func (p *parser) compare() expression {
	left := p.sum()
	var whole expression
	for {
		t := p.peek()
		operator := p.comparison()
		switch {
		case operator != "":
		case whole == nil:
			return left
		default:
			return whole
		}
		right := p.sum()
		one := &binary{operator, left, right, t.line}
		if whole == nil {
			whole = one
		} else {
			whole = &binary{"and", whole, one, t.line}
		}
		left = right
	}
}

// comparison reads an operator of compare, or returns "".
func (p *parser) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokenOperator && slices.Contains(comparisons, t.text), t.is(tokenName, "in"):
		return p.next().text
	case t.is(tokenName, "not") && p.tokens[p.at+1].is(tokenName, "in"):
		p.at += 2
		return "not in"
	}
	return ""
}

// signed reads a sign, an operand, and what follows it.
func (p *parser) signed() expression {
	defer p.deeper()()
	if t := p.peek(); p.take(tokenOperator, "-") || p.take(tokenOperator, "+") {
		return p.postfix(&unary{t.text, p.signed(), t.line})
	}
	return p.postfix(p.primary())
}

func (p *parser) primary() expression {
	t := p.peek()
	switch t.kind {
	case tokenName:
		p.next()
		return named(t.text)
	case tokenString:
		whole := ""
		for p.peek().kind == tokenString { // adjacent strings are one
			whole += p.next().text
		}
		return constant{whole}
	case tokenInt:
		n, err := strconv.ParseInt(p.next().text, 10, 64)
		if err != nil {
			p.failf("number %s is too large", t.text)
		}
		return constant{n}
	case tokenFloat:
		x, err := strconv.ParseFloat(p.next().text, 64)
		if err != nil {
			p.failf("number %s is too large", t.text)
		}
		return constant{x}
	}
	switch {
	case p.take(tokenOperator, "("):
		return p.parentheses()
	case p.take(tokenOperator, "["):
		return p.list()
	case p.take(tokenOperator, "{"):
		return p.dict()
	}
	p.failf("unexpected %q", t.text)
	return nil
}

func named(name string) expression {
	switch name {
	case "true", "True":
		return constant{true}
	case "false", "False":
		return constant{false}
	case "none", "None":
		return constant{nil}
	}
	return variable(name)
}

func (p *parser) parentheses() expression {
	if p.take(tokenOperator, ")") {
		return listOf{}
	}
	e := p.tuple()
	p.expect(tokenOperator, ")")
	return e
}

func (p *parser) list() (list listOf) {
	for p.err == nil && !p.take(tokenOperator, "]") {
		list = append(list, p.expression())
		p.separator("]")
	}
	return list
}

func (p *parser) dict() expression {
	d := &dictOf{line: p.peek().line}
	for p.err == nil && !p.take(tokenOperator, "}") {
		d.keys = append(d.keys, p.expression())
		p.expect(tokenOperator, ":")
		d.values = append(d.values, p.expression())
		p.separator("}")
	}
	return d
}

// postfix reads the members, subscripts and calls that follow an operand.
func (p *parser) postfix(e expression) expression {
	for {
		line := p.peek().line
		switch {
		case p.take(tokenOperator, "."):
			if t := p.peek(); t.kind == tokenInt {
				p.next()
				n, _ := strconv.ParseInt(t.text, 10, 64)
				e = &subscript{e, constant{n}, line}
			} else {
				e = &attribute{e, p.name(), line}
			}
		case p.take(tokenOperator, "["):
			e = p.subscript(e, line)
		case p.peek().is(tokenOperator, "("):
			e = &call{callee: e, arguments: p.arguments(), line: line}
		default:
			return e
		}
	}
}

func (p *parser) subscript(e expression, line int) expression {
	s := &slice{of: e, line: line}
	parts := []*expression{&s.from, &s.to, &s.step}
	colons := 0
	for p.err == nil && !p.take(tokenOperator, "]") {
		if p.take(tokenOperator, ":") {
			if colons++; colons > 2 {
				p.failf("a slice has three parts at most")
			}
			continue
		}
		one := p.expression()
		if *parts[colons] != nil {
			p.failf("got %q, want a colon or \"]\"", p.peek().text)
		}
		*parts[colons] = one
	}
	if colons > 0 {
		return s
	}
	if s.from == nil {
		p.failf("a subscript is empty")
	}
	return &subscript{e, s.from, line}
}

// arguments reads the arguments of a call with their brackets.
func (p *parser) arguments() (a argumentList) {
	p.expect(tokenOperator, "(")
	for p.err == nil && !p.take(tokenOperator, ")") {
		if t := p.peek(); t.kind == tokenName && p.tokens[p.at+1].is(tokenOperator, "=") {
			p.at += 2
			a.names, a.named = append(a.names, t.text), append(a.named, p.expression())
		} else {
			a.list = append(a.list, p.expression())
		}
		p.separator(")")
	}
	return a
}

// filters reads the filters, tests and calls that follow an operand.
func (p *parser) filters(e expression) expression {
	for {
		switch {
		case p.take(tokenOperator, "|"):
			e = p.filter(e)
		case e != nil && p.take(tokenName, "is"):
			e = p.test(e)
		case e != nil && p.peek().is(tokenOperator, "("):
			e = p.postfix(e)
		default:
			return e
		}
	}
}

// filter reads the name and the arguments of a filter. Without an operand it is applied to the
// text of a block.
func (p *parser) filter(e expression) expression {
	if e == nil {
		e = blockText{}
	}
	f := &applied{operand: e, line: p.peek().line}
	t := p.peek()
	if f.apply = filterNamed(p.name()); f.apply == nil {
		p.failf("No filter named '%s'.", t.text)
	}
	if p.peek().is(tokenOperator, "(") {
		f.arguments = p.arguments()
	}
	return f
}

// noOperand are names that cannot be the argument of a test.
var noOperand = []string{"else", "or", "and", "if", "is", "in", "not"}

func (p *parser) test(e expression) expression {
	t := &applied{operand: e, line: p.peek().line}
	negated := p.take(tokenName, "not")
	name := p.peek()
	holds := tests[p.name()]
	if holds == nil {
		p.failf("No test named '%s'.", name.text)
	}
	t.apply = func(_ *run, v Value, a *arguments) Value { return holds(v, a) != negated }
	switch next := p.peek(); {
	case next.is(tokenOperator, "("):
		t.arguments = p.arguments()
	case next.kind == tokenName && !slices.Contains(noOperand, next.text), next.kind == tokenString, next.kind == tokenInt,
		next.kind == tokenFloat, next.is(tokenOperator, "["), next.is(tokenOperator, "{"):
		t.arguments.list = []expression{p.postfix(p.primary())}
	}
	return t
}
