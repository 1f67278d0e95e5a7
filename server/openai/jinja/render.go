package jinja

import (
	"errors"
	"fmt"
)

// RaisedError is the message of a template's raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return e.Message }

// run is one rendering.
type run struct {
	*Meter
	depth  int // of calls
	out    *writer
	jumped jump // a break or continue that is ending a loop's body, or ""
}

// frame has the variables of one scope.
type frame struct {
	outer *frame
	names []member
	kept  bool     // a macro refers to it
	loop  position // of the loop whose body this is
}

// loopName is the variable of a loop's position.
const loopName = "loop"

func (f *frame) find(name string) (Value, bool) {
	for ; f != nil; f = f.outer {
		for i := range f.names {
			if f.names[i].name == name {
				return f.names[i].value, true
			}
		}
		if f.loop.list != nil && name == loopName {
			now := f.loop
			return &now, true
		}
	}
	return nil, false
}

// set gives a variable its value.
func (r *run) set(f *frame, name string, v Value) {
	for i := range f.names {
		if f.names[i].name == name {
			f.names[i].value = v
			return
		}
	}
	f.names = r.bind(f.names, name, v)
}

// leave returns the memory of a scope that has ended.
func (r *run) leave(f *frame) {
	if !f.kept {
		r.give(memberCost * cap(f.names))
	}
}

// Render returns the text of a template for these variables, whose values m has created. A meter
// renders once.
func (m *Meter) Render(t *Template, variables map[string]Value) (string, error) {
	r := &run{Meter: m, out: &writer{m: m}}
	given := &frame{outer: globals}
	for name, v := range variables {
		r.set(given, name, v)
	}
	r.all(t.body, &frame{outer: given})
	return r.out.value(), m.err
}

// all runs statements up to a jump.
func (r *run) all(list []statement, f *frame) {
	for _, s := range list {
		if !r.step() {
			return
		}
		if s.run(r, f); r.jumped != "" {
			return
		}
	}
}

// apart runs statements in a scope of their own and returns their text.
func (r *run) apart(list []statement, f *frame) string {
	out := writer{m: r.Meter}
	before := r.out
	r.out = &out
	r.all(list, f)
	r.out = before
	r.leave(f)
	return out.value()
}

// eval counts a step and evaluates e.
func (r *run) eval(e expression, f *frame) Value {
	if !r.step() {
		return nil
	}
	return e.value(r, f)
}

// atLine returns v. It adds the line to an error that has none and is not the template's own.
func (r *run) atLine(line int, v Value) Value {
	var raised *RaisedError
	var known *lineError
	if r.err != nil && !errors.As(r.err, &raised) && !errors.As(r.err, &known) {
		r.err = &lineError{line, r.err}
	}
	return v
}

type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) } // bound: errors are brief
func (e *lineError) Unwrap() error { return e.err }

type text string

func (t text) run(r *run, _ *frame) { r.out.text(string(t)) } // bound: the template

type output struct {
	e    expression
	line int
}

func (o output) run(r *run, f *frame) { r.out.str(r.atLine(o.line, o.e.value(r, f))) }

type group []statement

func (g group) run(r *run, f *frame) { r.all(g, f) }

type jump string

func (j jump) run(r *run, _ *frame) { r.jumped = j }

type branch struct {
	condition expression
	body      []statement
}

type conditional struct {
	branches  []branch
	otherwise []statement
}

func (c *conditional) run(r *run, f *frame) {
	for _, b := range c.branches {
		v := b.condition.value(r, f)
		if r.err != nil {
			return
		}
		if truth(v) {
			r.all(b.body, f)
			return
		}
	}
	r.all(c.otherwise, f)
}

type assignment struct {
	targets []string
	member  string // of a namespace
	value   expression
	filters expression // of a block
	body    []statement
	line    int
}

func (a *assignment) run(r *run, f *frame) {
	v := a.assigned(r, f)
	if r.err == nil {
		a.assign(r, f, v)
	}
	r.atLine(a.line, nil)
}

func (a *assignment) assign(r *run, f *frame, v Value) {
	switch {
	case len(a.targets) == 0: // a block with filters
		r.out.str(v)
	case a.member != "":
		of, _ := f.find(a.targets[0])
		d, ok := of.(*Dict)
		if !ok || !d.namespace {
			r.failf("cannot assign attribute on non-namespace object")
			return
		}
		r.Set(d, a.member, v)
	default:
		r.unpack(f, a.targets, v)
	}
}

func (a *assignment) assigned(r *run, f *frame) Value {
	if a.value != nil {
		return a.value.value(r, f)
	}
	s := r.apart(a.body, &frame{outer: f})
	if r.err != nil || a.filters == nil {
		return s
	}
	block := &frame{outer: f}
	defer r.leave(block)
	r.set(block, blockName, s)
	return a.filters.value(r, block)
}

// blockName is the variable of a block's text, which no template can name.
const blockName = " block"

// blockText is the operand of the filters of a block.
type blockText struct{}

func (blockText) value(_ *run, f *frame) Value {
	v, _ := f.find(blockName)
	return v
}

// unpack gives names their values.
func (r *run) unpack(f *frame, names []string, v Value) {
	if len(names) == 1 {
		r.set(f, names[0], v)
		return
	}
	list := r.items(v)
	if len(list) != len(names) {
		r.failf("%d values, want %d", len(list), len(names))
		return
	}
	for i, name := range names {
		r.set(f, name, list[i])
	}
}

type scope struct {
	assignments []*assignment
	body        []statement
}

func (s *scope) run(r *run, f *frame) {
	inner := &frame{outer: f}
	defer r.leave(inner)
	for _, a := range s.assignments {
		v := r.atLine(a.line, a.value.value(r, f))
		if r.err != nil {
			return
		}
		r.set(inner, a.targets[0], v)
	}
	r.all(s.body, inner)
}

type loop struct {
	targets         []string
	over, condition expression
	body, otherwise []statement
	line            int
}

func (l *loop) run(r *run, f *frame) {
	list := l.list(r, f)
	r.atLine(l.line, nil)
	inner := &frame{outer: f}
	defer func() { r.leave(inner) }()
	if len(list) == 0 {
		r.all(l.otherwise, inner)
		return
	}
	for i, v := range r.each(list) {
		r.step()
		inner = inner.again()
		inner.loop = position{list, i}
		r.unpack(inner, l.targets, v)
		r.atLine(l.line, nil)
		r.all(l.body, inner)
		end := r.jumped == "break"
		r.jumped = ""
		if end {
			return
		}
	}
}

// again returns an empty scope for the next iteration: f itself, unless a macro refers to it.
func (f *frame) again() *frame {
	if f.kept {
		return &frame{outer: f.outer}
	}
	f.names = f.names[:0]
	return f
}

// list returns the values that meet the loop's condition.
func (l *loop) list(r *run, f *frame) List {
	list := r.items(l.over.value(r, f))
	if l.condition == nil {
		return list
	}
	inner := &frame{outer: f}
	defer func() { r.leave(inner) }()
	var kept List
	for _, v := range r.each(list) {
		inner = inner.again()
		r.unpack(inner, l.targets, v)
		if r.err == nil && truth(l.condition.value(r, inner)) {
			kept = r.Append(kept, v)
		} else {
			r.step()
		}
	}
	return kept
}

// position is the variable "loop".
type position struct {
	list List
	i    int
}

func (p *position) member(name string) (Value, bool) {
	n := len(p.list)
	switch name {
	case "index":
		return int64(p.i + 1), true
	case "index0":
		return int64(p.i), true
	case "revindex":
		return int64(n - p.i), true
	case "revindex0":
		return int64(n - p.i - 1), true
	case "first":
		return p.i == 0, true
	case "last":
		return p.i == n-1, true
	case "length":
		return int64(n), true
	case "previtem":
		if p.i > 0 {
			return p.list[p.i-1], true
		}
	case "nextitem":
		if p.i < n-1 {
			return p.list[p.i+1], true
		}
	case "cycle":
		return function(func(r *run, a *arguments) Value {
			if len(a.list) == 0 {
				return r.failf("no items for cycling given")
			}
			return a.list[p.i%len(a.list)]
		}), true
	}
	return nil, false
}

type parameter struct {
	name      string
	otherwise expression // nil: there is no default
}

type macro struct {
	name       string
	parameters []parameter
	body       []statement
}

func (m *macro) run(r *run, f *frame) {
	for outer := f; outer != nil && !outer.kept; outer = outer.outer {
		outer.kept = true
	}
	r.set(f, m.name, function(func(r *run, a *arguments) Value { return m.call(r, f, a) }))
}

// call runs the macro in the scope that defines it.
func (m *macro) call(r *run, outer *frame, a *arguments) Value {
	if len(a.list) > len(m.parameters) {
		return r.failf("macro '%s' takes not more than %d argument(s)", m.name, len(m.parameters))
	}
	f := &frame{outer: outer}
	for i, p := range m.parameters {
		v, given := a.at(i, p.name)
		switch {
		case given:
		case p.otherwise != nil:
			v = p.otherwise.value(r, f)
		default:
			v = Undefined{noVariable, p.name}
		}
		r.set(f, p.name, v)
	}
	s := r.apart(m.body, f)
	r.jumped = "" // a jump in a macro does not end the caller's loop
	return s
}
