package jinja

import (
	"fmt"
	"slices"
)

// Template is a source that has been parsed.
type Template struct {
	body []statement
}

// statement is a part of a template that writes or changes variables.
type statement interface {
	run(r *run, f *frame) error
}

// parser reads tokens in order.
type parser struct {
	tokens []token
	at     int
	depth  int // of statements and expressions inside each other
}

// maxDepth bounds the nesting of what is parsed, and of calls of macros.
const maxDepth = 200

// Parse parses a template.
func Parse(source string) (*Template, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, err := p.statements()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokenEOF {
		return nil, p.errorf("unexpected tag %q", p.tokens[p.at+1].text)
	}
	return &Template{body}, nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEOF {
		p.at++
	}
	return t
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", p.peek().line, fmt.Errorf(format, args...))
}

// take goes on if the next token is that operator or name.
func (p *parser) take(kind tokenKind, text string) bool {
	if !p.peek().is(kind, text) {
		return false
	}
	p.at++
	return true
}

func (p *parser) expect(kind tokenKind, text string) error {
	if !p.take(kind, text) {
		return p.errorf("got %q, want %q", p.peek().text, text)
	}
	return nil
}

func (p *parser) name() (string, error) {
	if t := p.peek(); t.kind == tokenName {
		p.at++
		return t.text, nil
	}
	return "", p.errorf("got %q, want a name", p.peek().text)
}

// deeper counts one level of nesting until the function that it returns is called.
func (p *parser) deeper() (func(), error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("the template nests too deeply")
	}
	return func() { p.depth-- }, nil
}

// statements reads up to the end, or to a block that begins with one of these names, whose
// name is the next token but one.
func (p *parser) statements(ends ...string) (list []statement, err error) {
	back, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer back()
	for {
		t := p.peek()
		switch {
		case t.kind == tokenEOF:
			if len(ends) > 0 {
				return nil, p.errorf("the template ends, want %q", ends)
			}
			return list, nil
		case t.kind == tokenText:
			p.next()
			list = append(list, text(t.text))
		case t.is(tokenBegin, "{{"):
			p.next()
			e, err := p.tuple()
			if err != nil {
				return nil, err
			}
			if err := p.expect(tokenEnd, "}}"); err != nil {
				return nil, err
			}
			list = append(list, output{e, t.line})
		default:
			name := p.tokens[p.at+1].text
			if slices.Contains(ends, name) || len(ends) == 0 && isEnd(name) {
				return list, nil
			}
			s, err := p.block()
			if err != nil {
				return nil, err
			}
			list = append(list, s)
		}
	}
}

func isEnd(name string) bool {
	return len(name) > 3 && name[:3] == "end" || name == "else" || name == "elif"
}

// end reads the rest of a block.
func (p *parser) end() error { return p.expect(tokenEnd, "%}") }

// until reads statements and the block that ends them.
func (p *parser) until(end string) ([]statement, error) {
	if err := p.end(); err != nil {
		return nil, err
	}
	body, err := p.statements(end)
	if err != nil {
		return nil, err
	}
	p.at += 2
	return body, p.end()
}

func (p *parser) block() (statement, error) {
	p.next()
	line := p.peek().line
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	switch name {
	case "if":
		return p.ifBlock()
	case "for":
		return p.forBlock()
	case "set":
		return p.setBlock()
	case "macro":
		return p.macroBlock()
	case "filter":
		return p.filterBlock(line)
	case "with":
		return p.withBlock()
	case "generation":
		body, err := p.until("endgeneration")
		return group(body), err
	case "break", "continue":
		return jump(name), p.end()
	}
	p.at--
	return nil, p.errorf("unknown tag %q", name)
}

func (p *parser) ifBlock() (statement, error) {
	s := &conditional{}
	condition, err := p.tuple()
	for {
		if err != nil {
			return nil, err
		}
		if err := p.end(); err != nil {
			return nil, err
		}
		body, err2 := p.statements("elif", "else", "endif")
		if err2 != nil {
			return nil, err2
		}
		s.branches = append(s.branches, branch{condition, body})
		p.next()
		switch name := p.next().text; name {
		case "elif":
			condition, err = p.tuple()
			continue
		case "else":
			s.otherwise, err = p.until("endif")
			return s, err
		}
		return s, p.end()
	}
}

func (p *parser) forBlock() (statement, error) {
	s := &loop{line: p.peek().line}
	var err error
	if s.targets, err = p.names(); err != nil {
		return nil, err
	}
	if err := p.expect(tokenName, "in"); err != nil {
		return nil, err
	}
	if s.over, err = p.tupleOf(p.or); err != nil {
		return nil, err
	}
	if p.take(tokenName, "if") {
		if s.condition, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.peek().is(tokenName, "recursive") {
		return nil, p.errorf("loops are not recursive here")
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	if s.body, err = p.statements("else", "endfor"); err != nil {
		return nil, err
	}
	p.next()
	if p.next().text == "else" {
		s.otherwise, err = p.until("endfor")
		return s, err
	}
	return s, p.end()
}

// names reads one name or several with commas between them.
func (p *parser) names() (list []string, err error) {
	open := p.take(tokenOperator, "(")
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		list = append(list, name)
		if !p.take(tokenOperator, ",") {
			break
		}
	}
	if open {
		err = p.expect(tokenOperator, ")")
	}
	return list, err
}

func (p *parser) setBlock() (statement, error) {
	s := &assignment{line: p.peek().line}
	var err error
	if s.targets, err = p.names(); err != nil {
		return nil, err
	}
	if len(s.targets) == 1 && p.take(tokenOperator, ".") {
		if s.member, err = p.name(); err != nil {
			return nil, err
		}
	}
	if p.take(tokenOperator, "=") {
		if s.value, err = p.tuple(); err != nil {
			return nil, err
		}
		return s, p.end()
	}
	if s.filters, err = p.filters(nil); err != nil {
		return nil, err
	}
	s.body, err = p.until("endset")
	return s, err
}

func (p *parser) macroBlock() (statement, error) {
	m := &macro{}
	var err error
	if m.name, err = p.name(); err != nil {
		return nil, err
	}
	if err := p.expect(tokenOperator, "("); err != nil {
		return nil, err
	}
	for !p.take(tokenOperator, ")") {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		var otherwise expression
		if p.take(tokenOperator, "=") {
			if otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		m.parameters = append(m.parameters, parameter{name, otherwise})
		if !p.take(tokenOperator, ",") && !p.peek().is(tokenOperator, ")") {
			return nil, p.errorf("got %q, want a comma or a bracket", p.peek().text)
		}
	}
	m.body, err = p.until("endmacro")
	return m, err
}

func (p *parser) filterBlock(line int) (statement, error) {
	s := &assignment{line: line}
	e, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	if s.filters, err = p.filters(e); err != nil {
		return nil, err
	}
	s.body, err = p.until("endfilter")
	return s, err
}

func (p *parser) withBlock() (statement, error) {
	s := &scope{}
	for !p.peek().is(tokenEnd, "%}") {
		a := &assignment{line: p.peek().line}
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		a.targets = []string{name}
		if err := p.expect(tokenOperator, "="); err != nil {
			return nil, err
		}
		if a.value, err = p.expression(); err != nil {
			return nil, err
		}
		s.assignments = append(s.assignments, a)
		if !p.take(tokenOperator, ",") {
			break
		}
	}
	var err error
	s.body, err = p.until("endwith")
	return s, err
}
