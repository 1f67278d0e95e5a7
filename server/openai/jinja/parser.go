package jinja

import (
	"fmt"
	"slices"
)

// Template is a parsed source.
type Template struct {
	body []statement
}

// statement is a part of a template that writes or changes variables.
type statement interface {
	run(r *run, f *frame)
}

// parser reads tokens in order. After the first error only the end is left to read.
type parser struct {
	tokens []token
	at     int
	depth  int // of nested statements and expressions
	err    error
}

// maxDepth bounds the nesting of templates and of macro calls.
const maxDepth = 200

// Parse parses a template.
func Parse(source string) (*Template, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body := p.statements()
	if p.peek().kind != tokenEOF {
		p.failf("unexpected tag %q", p.tokens[p.at+1].text)
	}
	if p.err != nil {
		return nil, p.err
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

// failf ends the parsing, unless it has already ended.
func (p *parser) failf(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("line %d: %w", p.peek().line, fmt.Errorf(format, args...))
		p.at = len(p.tokens) - 1
	}
}

// take skips the next token if it is that operator or name.
func (p *parser) take(kind tokenKind, text string) bool {
	if !p.peek().is(kind, text) {
		return false
	}
	p.at++
	return true
}

func (p *parser) expect(kind tokenKind, text string) {
	if !p.take(kind, text) {
		p.failf("got %q, want %q", p.peek().text, text)
	}
}

// separator reads a comma, unless the list ends here.
func (p *parser) separator(end string) {
	if !p.take(tokenOperator, ",") && !p.peek().is(tokenOperator, end) {
		p.failf("got %q, want a comma or %q", p.peek().text, end)
	}
}

func (p *parser) name() string {
	if p.peek().kind != tokenName {
		p.failf("got %q, want a name", p.peek().text)
	}
	return p.next().text
}

// deeper counts one level of nesting until the returned function is called.
func (p *parser) deeper() (back func()) {
	if p.depth++; p.depth > maxDepth {
		p.failf("the template nests too deeply")
	}
	return func() { p.depth-- }
}

// statements reads up to the end, or to a block that begins with one of these names. The name is
// the token after the next.
func (p *parser) statements(ends ...string) (list []statement) {
	defer p.deeper()()
	for {
		t := p.peek()
		switch {
		case t.kind == tokenEOF:
			if len(ends) > 0 {
				p.failf("the template ends, want %q", ends)
			}
			return list
		case t.kind == tokenText:
			p.next()
			list = append(list, text(t.text))
		case t.is(tokenBegin, "{{"):
			p.next()
			list = append(list, output{p.tuple(), t.line})
			p.expect(tokenEnd, "}}")
		default:
			name := p.tokens[p.at+1].text
			if slices.Contains(ends, name) || len(ends) == 0 && isEnd(name) {
				return list
			}
			list = append(list, p.block())
		}
	}
}

func isEnd(name string) bool {
	return len(name) > 3 && name[:3] == "end" || name == "else" || name == "elif"
}

// end reads the rest of a block.
func (p *parser) end() { p.expect(tokenEnd, "%}") }

// until reads statements and the block that ends them.
func (p *parser) until(end string) []statement {
	p.end()
	body := p.statements(end)
	p.next()
	p.next()
	p.end()
	return body
}

func (p *parser) block() statement {
	p.next()
	t := p.peek()
	switch name := p.name(); name {
	case "if":
		return p.ifBlock()
	case "for":
		return p.forBlock()
	case "set":
		return p.setBlock()
	case "macro":
		return p.macroBlock()
	case "filter":
		return p.filterBlock(t.line)
	case "with":
		return p.withBlock()
	case "generation":
		return group(p.until("endgeneration"))
	case "break", "continue":
		p.end()
		return jump(name)
	}
	p.failf("unknown tag %q", t.text)
	return nil
}

func (p *parser) ifBlock() statement {
	s := &conditional{}
	for {
		condition := p.tuple()
		p.end()
		s.branches = append(s.branches, branch{condition, p.statements("elif", "else", "endif")})
		p.next()
		switch p.next().text {
		case "elif":
			continue
		case "else":
			s.otherwise = p.until("endif")
		default:
			p.end()
		}
		return s
	}
}

func (p *parser) forBlock() statement {
	s := &loop{line: p.peek().line, targets: p.names()}
	p.expect(tokenName, "in")
	s.over = p.tupleOf(p.or)
	if p.take(tokenName, "if") {
		s.condition = p.expression()
	}
	if p.peek().is(tokenName, "recursive") {
		p.failf("recursive loops are not supported")
	}
	p.end()
	s.body = p.statements("else", "endfor")
	p.next()
	if p.next().text == "else" {
		s.otherwise = p.until("endfor")
	} else {
		p.end()
	}
	return s
}

// names reads one name, or several that are separated by commas.
func (p *parser) names() (list []string) {
	open := p.take(tokenOperator, "(")
	list = append(list, p.name())
	for p.take(tokenOperator, ",") {
		list = append(list, p.name())
	}
	if open {
		p.expect(tokenOperator, ")")
	}
	return list
}

func (p *parser) setBlock() statement {
	s := &assignment{line: p.peek().line, targets: p.names()}
	if len(s.targets) == 1 && p.take(tokenOperator, ".") {
		s.member = p.name()
	}
	if p.take(tokenOperator, "=") {
		s.value = p.tuple()
		p.end()
		return s
	}
	s.filters = p.filters(nil)
	s.body = p.until("endset")
	return s
}

func (p *parser) macroBlock() statement {
	m := &macro{name: p.name()}
	p.expect(tokenOperator, "(")
	for p.err == nil && !p.take(tokenOperator, ")") {
		one := parameter{name: p.name()}
		if p.take(tokenOperator, "=") {
			one.otherwise = p.expression()
		}
		m.parameters = append(m.parameters, one)
		p.separator(")")
	}
	m.body = p.until("endmacro")
	return m
}

func (p *parser) filterBlock(line int) statement {
	s := &assignment{line: line, filters: p.filters(p.filter(nil))}
	s.body = p.until("endfilter")
	return s
}

func (p *parser) withBlock() statement {
	s := &scope{}
	for p.err == nil && !p.peek().is(tokenEnd, "%}") {
		a := &assignment{line: p.peek().line, targets: []string{p.name()}}
		p.expect(tokenOperator, "=")
		a.value = p.expression()
		s.assignments = append(s.assignments, a)
		if !p.take(tokenOperator, ",") {
			break
		}
	}
	s.body = p.until("endwith")
	return s
}
