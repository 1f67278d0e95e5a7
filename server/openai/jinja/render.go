package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits bound a rendering. The zero value has the defaults.
type Limits struct {
	// Steps is how many statements and expressions may be evaluated; default 10 million.
	Steps int
	// Room is asked for the bytes of texts before they are made, all told; nil: there is
	// room. Its error ends the rendering.
	Room func(bytes int64) error
	// Now is the time of strftime_now; nil is time.Now.
	Now func() time.Time
}

// RaisedError is what a template says by raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return e.Message }

// run is one rendering.
type run struct {
	limits Limits
	steps  int
	bytes  int64 // room that has been taken
	texts  int64 // bytes of texts that were made
	depth  int   // of calls
	out    *strings.Builder
	jumped jump // what ends the body of a loop; "" mostly
}

// frame has the variables of one scope.
type frame struct {
	outer *frame
	names map[string]Value
}

func (f *frame) find(name string) (Value, bool) {
	for ; f != nil; f = f.outer {
		if v, ok := f.names[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (f *frame) set(name string, v Value) {
	if f.names == nil {
		f.names = map[string]Value{}
	}
	f.names[name] = v
}

// Render returns what the template makes of the variables.
func (t *Template) Render(variables map[string]Value, limits Limits) (string, error) {
	if limits.Steps == 0 {
		limits.Steps = 10_000_000
	}
	if limits.Now == nil {
		limits.Now = time.Now
	}
	var out strings.Builder
	r := &run{limits: limits, out: &out}
	if err := r.all(t.body, &frame{outer: &frame{outer: globals, names: variables}}); err != nil {
		return "", err
	}
	return out.String(), nil
}

// roomStep is how many bytes Limits.Room is asked for at a time.
const roomStep = 64 << 10

// spend counts n bytes of text that are about to be made.
func (r *run) spend(n int) error {
	r.texts += int64(n)
	if r.texts <= r.bytes || r.limits.Room == nil {
		return nil
	}
	more := max(r.texts-r.bytes, roomStep)
	r.bytes += more
	return r.limits.Room(more)
}

// made counts a text that has been made, of about as many bytes as its parts.
func (r *run) made(s string) (Value, error) { return s, r.spend(len(s)) }

func (r *run) step() error {
	if r.steps++; r.steps > r.limits.Steps {
		return fmt.Errorf("the template takes more than %d steps", r.limits.Steps)
	}
	return nil
}

func (r *run) write(s string) error {
	if err := r.spend(len(s)); err != nil {
		return err
	}
	r.out.WriteString(s)
	return nil
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

// apart runs statements and returns what they write.
func (r *run) apart(list []statement, f *frame) (string, error) {
	var out strings.Builder
	before := r.out
	r.out = &out
	err := r.all(list, f)
	r.out = before
	return out.String(), err
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

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

type text string

func (t text) run(r *run, _ *frame) error { return r.write(string(t)) }

type output struct {
	e    expression
	line int
}

func (o output) run(r *run, f *frame) error {
	v, err := o.e.value(r, f)
	if err != nil {
		return atLine(err, o.line)
	}
	if s, ok := v.(string); ok {
		return r.write(s)
	}
	return r.write(str(v))
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
		return r.write(str(v))
	case a.member != "":
		of, _ := f.find(a.targets[0])
		d, ok := of.(*Dict)
		if !ok || !d.namespace {
			return atLine(errors.New("cannot assign attribute on non-namespace object"), a.line)
		}
		d.Set(a.member, v)
		return nil
	}
	return atLine(unpack(f, a.targets, v), a.line)
}

func (a *assignment) assigned(r *run, f *frame) (Value, error) {
	if a.value != nil {
		return a.value.value(r, f)
	}
	s, err := r.apart(a.body, &frame{outer: f})
	if err != nil || a.filters == nil {
		return s, err
	}
	return a.filters.value(r, &frame{outer: f, names: map[string]Value{blockName: s}})
}

// blockName is the variable of a block's text, which no template can name.
const blockName = " block"

// blockText is the operand of the filters of a block.
type blockText struct{}

func (blockText) value(_ *run, f *frame) (Value, error) { return f.names[blockName], nil }

// unpack gives names their values.
func unpack(f *frame, names []string, v Value) error {
	if len(names) == 1 {
		f.set(names[0], v)
		return nil
	}
	list, err := items(v)
	if err != nil {
		return err
	}
	if len(list) != len(names) {
		return fmt.Errorf("%d values, want %d", len(list), len(names))
	}
	for i, name := range names {
		f.set(name, list[i])
	}
	return nil
}

type scope struct {
	assignments []*assignment
	body        []statement
}

func (s *scope) run(r *run, f *frame) error {
	inner := &frame{outer: f}
	for _, a := range s.assignments {
		v, err := a.value.value(r, f)
		if err != nil {
			return atLine(err, a.line)
		}
		inner.set(a.targets[0], v)
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
	if len(list) == 0 {
		return r.all(l.otherwise, &frame{outer: f})
	}
	for i, v := range list {
		if err := r.step(); err != nil {
			return err
		}
		inner := &frame{outer: f, names: map[string]Value{"loop": &position{list, i}}}
		if err := unpack(inner, l.targets, v); err != nil {
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

// list returns what the loop goes through, less what its condition leaves out.
func (l *loop) list(r *run, f *frame) (List, error) {
	v, err := l.over.value(r, f)
	if err != nil {
		return nil, err
	}
	list, err := items(v)
	if err != nil || l.condition == nil {
		return list, err
	}
	var kept List
	for _, v := range list {
		inner := &frame{outer: f}
		if err := unpack(inner, l.targets, v); err != nil {
			return nil, err
		}
		ok, err := l.condition.value(r, inner)
		if err != nil {
			return nil, err
		}
		if truth(ok) {
			kept = append(kept, v)
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

func (m *macro) run(_ *run, f *frame) error {
	f.set(m.name, function(func(r *run, a *arguments) (Value, error) { return m.call(r, f, a) }))
	return nil
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
			v = Undefined{p.name}
			if p.otherwise != nil {
				var err error
				if v, err = p.otherwise.value(r, f); err != nil {
					return nil, err
				}
			}
		}
		f.set(p.name, v)
	}
	s, err := r.apart(m.body, f)
	r.jumped = "" // which would end a loop of the caller's
	return s, err
}
