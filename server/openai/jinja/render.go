package jinja

import (
	"errors"
	"fmt"
)

// RaisedError is what a template says by raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return e.Message }

// run is one rendering.
type run struct {
	*Meter
	depth  int // of calls
	out    *writer
	jumped jump // what ends the body of a loop; "" mostly
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
func (r *run) set(f *frame, name string, v Value) (err error) {
	for i := range f.names {
		if f.names[i].name == name {
			f.names[i].value = v
			return nil
		}
	}
	f.names, err = r.bind(f.names, name, v)
	return err
}

// leave gives the memory of a scope back that has ended.
func (r *run) leave(f *frame) {
	if !f.kept {
		r.give(memberCost * cap(f.names))
	}
}

// Render returns the text of a template for these variables, whose values m has made. A meter
// renders once.
func (m *Meter) Render(t *Template, variables map[string]Value) (string, error) {
	out := writer{m: m}
	r := &run{Meter: m, out: &out}
	given := &frame{outer: globals}
	for name, v := range variables {
		if err := r.set(given, name, v); err != nil {
			return "", err
		}
	}
	if err := r.all(t.body, &frame{outer: given}); err != nil {
		return "", err
	}
	return out.value()
}

func (r *run) write(s string) error {
	r.out.text(s)
	return r.out.err
}

// all runs statements up to a jump.
func (r *run) all(list []statement, f *frame) error {
	for _, s := range list {
		if err := r.step(); err != nil {
			return err
		}
		if err := s.run(r, f); err != nil {
			return err
		}
		if r.jumped != "" {
			return nil
		}
	}
	return nil
}

// apart runs statements in a scope of their own and returns their text.
func (r *run) apart(list []statement, f *frame) (string, error) {
	out := writer{m: r.Meter}
	before := r.out
	r.out = &out
	err := r.all(list, f)
	r.out = before
	r.leave(f)
	if err != nil {
		return "", err
	}
	return out.value()
}

// atLine says in which line an error arose, unless it says so or is a template's own.
func atLine(err error, line int) error {
	var raised *RaisedError
	var known *lineError
	if err == nil || errors.As(err, &raised) || errors.As(err, &known) {
		return err
	}
	return &lineError{line, err}
}

type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) } // bound: errors are brief
func (e *lineError) Unwrap() error { return e.err }

type text string

func (t text) run(r *run, _ *frame) error { return r.write(string(t)) } // bound: the template

type output struct {
	e    expression
	line int
}

func (o output) run(r *run, f *frame) error {
	v, err := o.e.value(r, f)
	if err != nil {
		return atLine(err, o.line)
	}
	r.out.str(v)
	return r.out.err
}

type group []statement

func (g group) run(r *run, f *frame) error { return r.all(g, f) }

type jump string

func (j jump) run(r *run, _ *frame) error {
	r.jumped = j
	return nil
}

type branch struct {
	condition expression
	body      []statement
}

type conditional struct {
	branches  []branch
	otherwise []statement
}

func (c *conditional) run(r *run, f *frame) error {
	for _, b := range c.branches {
		v, err := b.condition.value(r, f)
		if err != nil {
			return err
		}
		if truth(v) {
			return r.all(b.body, f)
		}
	}
	return r.all(c.otherwise, f)
}

type assignment struct {
	targets []string
	member  string // of a namespace
	value   expression
	filters expression // of a block
	body    []statement
	line    int
}

func (a *assignment) run(r *run, f *frame) error {
	v, err := a.assigned(r, f)
	if err != nil {
		return atLine(err, a.line)
	}
	switch {
	case len(a.targets) == 0: // a block with filters
		r.out.str(v)
		return r.out.err
	case a.member != "":
		of, _ := f.find(a.targets[0])
		d, ok := of.(*Dict)
		if !ok || !d.namespace {
			return atLine(errors.New("cannot assign attribute on non-namespace object"), a.line)
		}
		return r.Set(d, a.member, v)
	}
	return atLine(r.unpack(f, a.targets, v), a.line)
}

func (a *assignment) assigned(r *run, f *frame) (Value, error) {
	if a.value != nil {
		return a.value.value(r, f)
	}
	s, err := r.apart(a.body, &frame{outer: f})
	if err != nil || a.filters == nil {
		return s, err
	}
	block := &frame{outer: f}
	defer r.leave(block)
	if err := r.set(block, blockName, s); err != nil {
		return nil, err
	}
	return a.filters.value(r, block)
}

// blockName is the variable of a block's text, which no template can name.
const blockName = " block"

// blockText is the operand of the filters of a block.
type blockText struct{}

func (blockText) value(_ *run, f *frame) (Value, error) {
	v, _ := f.find(blockName)
	return v, nil
}

// unpack gives names their values.
func (r *run) unpack(f *frame, names []string, v Value) error {
	if len(names) == 1 {
		return r.set(f, names[0], v)
	}
	list, err := r.items(v)
	if err != nil {
		return err
	}
	if len(list) != len(names) {
		return fmt.Errorf("%d values, want %d", len(list), len(names))
	}
	for i, name := range names {
		if err := r.set(f, name, list[i]); err != nil {
			return err
		}
	}
	return nil
}

type scope struct {
	assignments []*assignment
	body        []statement
}

func (s *scope) run(r *run, f *frame) error {
	inner := &frame{outer: f}
	defer r.leave(inner)
	for _, a := range s.assignments {
		v, err := a.value.value(r, f)
		if err != nil {
			return atLine(err, a.line)
		}
		if err := r.set(inner, a.targets[0], v); err != nil {
			return err
		}
	}
	return r.all(s.body, inner)
}

type loop struct {
	targets         []string
	over, condition expression
	body, otherwise []statement
	line            int
}

func (l *loop) run(r *run, f *frame) error {
	list, err := l.list(r, f)
	if err != nil {
		return atLine(err, l.line)
	}
	inner := &frame{outer: f}
	defer func() { r.leave(inner) }()
	if len(list) == 0 {
		return r.all(l.otherwise, inner)
	}
	for i, v := range list {
		if err := r.step(); err != nil {
			return err
		}
		inner = inner.again()
		inner.loop = position{list, i}
		if err := r.unpack(inner, l.targets, v); err != nil {
			return atLine(err, l.line)
		}
		if err := r.all(l.body, inner); err != nil {
			return err
		}
		end := r.jumped == "break"
		r.jumped = ""
		if end {
			break
		}
	}
	return nil
}

// again returns an empty scope for the next iteration: f itself, unless a macro refers to it.
func (f *frame) again() *frame {
	if f.kept {
		return &frame{outer: f.outer}
	}
	f.names = f.names[:0]
	return f
}

// list returns what the loop goes through, less what its condition leaves out.
func (l *loop) list(r *run, f *frame) (List, error) {
	v, err := l.over.value(r, f)
	if err != nil {
		return nil, err
	}
	list, err := r.items(v)
	if err != nil || l.condition == nil {
		return list, err
	}
	inner := &frame{outer: f}
	defer func() { r.leave(inner) }()
	var kept List
	for _, v := range list {
		inner = inner.again()
		if err := r.unpack(inner, l.targets, v); err != nil {
			return nil, err
		}
		ok, err := l.condition.value(r, inner)
		if err != nil {
			return nil, err
		}
		if !truth(ok) {
			err = r.step()
		} else {
			kept, err = r.Append(kept, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
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
		return function(func(_ *run, a *arguments) (Value, error) {
			if len(a.list) == 0 {
				return nil, errors.New("no items for cycling given")
			}
			return a.list[p.i%len(a.list)], nil
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

func (m *macro) run(r *run, f *frame) error {
	for outer := f; outer != nil && !outer.kept; outer = outer.outer {
		outer.kept = true
	}
	return r.set(f, m.name, function(func(r *run, a *arguments) (Value, error) { return m.call(r, f, a) }))
}

// call runs the macro in the scope that has it.
func (m *macro) call(r *run, outer *frame, a *arguments) (Value, error) {
	if len(a.list) > len(m.parameters) {
		return nil, fmt.Errorf("macro '%s' takes not more than %d argument(s)", m.name, len(m.parameters))
	}
	f := &frame{outer: outer}
	for i, p := range m.parameters {
		v, given := a.at(i, p.name)
		if !given {
			v = Undefined{noVariable, p.name}
			if p.otherwise != nil {
				var err error
				if v, err = p.otherwise.value(r, f); err != nil {
					return nil, err
				}
			}
		}
		if err := r.set(f, p.name, v); err != nil {
			return nil, err
		}
	}
	s, err := r.apart(m.body, f)
	r.jumped = "" // which would end a loop of the caller's
	return s, err
}
