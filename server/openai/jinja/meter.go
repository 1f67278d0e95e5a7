package jinja

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits bound a rendering. The zero value has the defaults.
type Limits struct {
	// Steps bounds the work: a statement, an expression, a value that is looked at and a KiB
	// of text that is read are a step each. Default 10 million.
	Steps int
	// Room is asked for bytes before they are allocated; nil grants all. The rendering keeps
	// the bytes until its result and its values are no longer used. An error ends the
	// rendering.
	Room func(bytes int64) error
	// Ended is called now and then. Its error ends the rendering; nil never ends it.
	Ended func() error
	// Now is the time of strftime_now; nil is time.Now.
	Now func() time.Time
}

// StepsError says that a rendering has taken more steps than it may.
type StepsError struct{ Limit int }

func (e *StepsError) Error() string {
	return fmt.Sprintf("the template takes more than %d steps", e.Limit) // bound: a number
}

// Meter counts the bytes and the steps of one rendering. It makes all values of the
// rendering: nothing else in this package allocates by the size of a value.
type Meter struct {
	limits Limits
	steps  int
	used   int64 // bytes of values
	room   int64 // bytes that Limits.Room has granted
	nested int   // levels of the current walk
}

// NewMeter returns a meter for one rendering and the values that it is given.
func NewMeter(limits Limits) *Meter {
	if limits.Steps == 0 {
		limits.Steps = 10_000_000
	}
	if limits.Now == nil {
		limits.Now = time.Now
	}
	return &Meter{limits: limits}
}

const (
	// roomStep is how many bytes Limits.Room is asked for at a time, at least.
	roomStep = 16 << 10
	// endedStep is how many steps pass before Limits.Ended is asked again.
	endedStep = 1 << 10
	// readStep is how many bytes of a text are read in a step.
	readStep = 1 << 10
	// slotCost is the size of an element of a list, with a small value on the heap.
	slotCost = 48
	// dictCost is the size of an empty dict, memberCost that of a member, indexCost that of
	// its place in the index of a large dict.
	dictCost, memberCost, indexCost = 64, 64, 64
	// maxNested bounds the nesting of values.
	maxNested = 1000
)

// Take counts n bytes that the caller is about to allocate for a value.
func (m *Meter) Take(n int) error { return m.take(n) }

// take counts n bytes that are about to be allocated.
func (m *Meter) take(n int) error {
	m.used += int64(n)
	if m.used <= m.room || m.limits.Room == nil {
		return nil
	}
	more := max(m.used-m.room, roomStep)
	if err := m.limits.Room(more); err != nil {
		m.used -= int64(n)
		return err
	}
	m.room += more
	return nil
}

// give returns n bytes that nothing uses any longer.
func (m *Meter) give(n int) { m.used -= int64(n) }

func (m *Meter) step() error { return m.count(1) }

// read counts the steps of reading n bytes.
func (m *Meter) read(n int) error { return m.count(n / readStep) }

func (m *Meter) count(steps int) error {
	before := m.steps
	if m.steps += steps; m.steps > m.limits.Steps {
		return &StepsError{m.limits.Steps}
	}
	if m.limits.Ended != nil && before/endedStep != m.steps/endedStep {
		return m.limits.Ended()
	}
	return nil
}

// inside counts one level of nesting until outside is called.
func (m *Meter) inside() error {
	if m.nested++; m.nested > maxNested {
		return errors.New("values nest too deeply")
	}
	return m.step()
}

func (m *Meter) outside() { m.nested-- }

// made returns n zero elements.
func made[T any](m *Meter, n int) ([]T, error) {
	if err := m.take(n * int(reflect.TypeFor[T]().Size())); err != nil {
		return nil, err
	}
	return make([]T, n), nil // bound: taken
}

// list returns an empty list with room for n elements.
func (m *Meter) list(n int) (List, error) {
	if err := m.take(slotCost * (n + 1)); err != nil {
		return nil, err
	}
	return make(List, 0, n), nil // bound: taken
}

// Append appends v to a list that nothing else has.
func (m *Meter) Append(l List, v Value) (List, error) {
	if err := m.step(); err != nil {
		return nil, err
	}
	if len(l) == cap(l) {
		larger := max(2, 2*cap(l))
		if err := m.take(slotCost * larger); err != nil {
			return nil, err
		}
		m.give(slotCost * cap(l))
		l = append(make(List, 0, larger), l...) // bound: taken
	}
	return append(l, v), nil // bound: there is room
}

// Dict returns an empty dict.
func (m *Meter) Dict() (*Dict, error) {
	if err := m.take(dictCost); err != nil {
		return nil, err
	}
	return &Dict{}, nil
}

// Set gives a member of d its value.
func (m *Meter) Set(d *Dict, name string, v Value) error {
	if err := m.step(); err != nil {
		return err
	}
	if i := d.find(name); i >= 0 {
		d.members[i].value = v
		return nil
	}
	if d.index == nil && len(d.members) >= indexFrom {
		if err := m.take(indexCost * len(d.members)); err != nil {
			return err
		}
		d.index = make(map[string]int, 2*len(d.members)) // bound: taken
		for i, one := range d.members {
			d.index[one.name] = i // bound: taken
		}
	}
	if d.index != nil {
		if err := m.take(indexCost); err != nil {
			return err
		}
		d.index[name] = len(d.members) // bound: taken
	}
	var err error
	d.members, err = m.bind(d.members, name, v)
	return err
}

// bind appends a member.
func (m *Meter) bind(to []member, name string, v Value) ([]member, error) {
	if len(to) == cap(to) {
		larger := max(2, 2*cap(to))
		if err := m.take(memberCost * larger); err != nil {
			return to, err
		}
		m.give(memberCost * cap(to))
		to = append(make([]member, 0, larger), to...) // bound: taken
	}
	return append(to, member{name, v}), nil // bound: there is room
}

// Text returns b as a text.
func (m *Meter) Text(b []byte) (string, error) {
	if err := m.take(len(b)); err != nil {
		return "", err
	}
	return string(b), m.read(len(b)) // bound: taken
}

// repeated returns a text n times.
func (m *Meter) repeated(s string, n int) (string, error) {
	if err := m.take(len(s) * n); err != nil {
		return "", err
	}
	return strings.Repeat(s, n), nil // bound: taken
}

// replaced replaces the first texts, or all of them if count is negative.
func (m *Meter) replaced(s, old, with string, count int) (string, error) {
	if err := m.read(2 * len(s)); err != nil {
		return "", err
	}
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 || old == with {
		return s, nil
	}
	if err := m.take(len(s) + n*len(with)); err != nil {
		return "", err
	}
	return strings.Replace(s, old, with, n), nil // bound: taken
}

// writer builds a text. After an error all writes do nothing.
type writer struct {
	m     *Meter
	b     strings.Builder
	taken int // bytes that the meter has counted
	err   error
	print [32]byte
}

// grow makes room for n bytes.
func (w *writer) grow(n int) bool {
	if w.err != nil {
		return false
	}
	if has := w.b.Cap(); has-w.b.Len() < n {
		larger := 2*has + n // as Builder.Grow does it
		if w.err = w.m.take(larger); w.err != nil {
			return false
		}
		w.b.Grow(n) // bound: taken
		w.m.give(w.taken)
		w.taken = larger
	}
	return true
}

func (w *writer) text(s string) {
	if w.grow(len(s)) {
		w.b.WriteString(s) // bound: there is room
	}
}

func (w *writer) bytes(b []byte) {
	if w.grow(len(b)) {
		w.b.Write(b) // bound: there is room
	}
}

func (w *writer) byte(c byte) {
	if w.grow(1) {
		w.b.WriteByte(c) // bound: there is room
	}
}

func (w *writer) rune(c rune) {
	size := utf8.RuneLen(c)
	if size < 0 { // it is written as utf8.RuneError
		size = utf8.RuneLen(utf8.RuneError)
	}
	if w.grow(size) {
		w.b.WriteRune(c) // bound: there is room
	}
}

func (w *writer) int(n int64) { w.bytes(strconv.AppendInt(w.print[:0], n, 10)) }

// hex writes a prefix and a number in hexadecimal, with leading zeros.
func (w *writer) hex(prefix string, n rune, digits int) {
	w.text(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		w.byte("0123456789abcdef"[n>>shift&15])
	}
}

// value returns the text.
func (w *writer) value() (string, error) {
	if w.err != nil {
		return "", w.err
	}
	return w.b.String(), nil
}
