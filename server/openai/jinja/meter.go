package jinja

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits bound a rendering. The zero value has the defaults.
type Limits struct {
	// Steps bounds the work. A statement, an expression, each value that is looked at and each
	// KiB of text that is read is a step. Default 10 million.
	Steps int
	// Room is asked for bytes before they are allocated; nil grants all. The rendering keeps
	// the bytes until its result and its values are no longer used. An error ends the
	// rendering.
	Room func(bytes int64) error
	// Ended is called from time to time. Its error ends the rendering; nil never ends it.
	Ended func() error
	// Now is the time of strftime_now; nil is time.Now.
	Now func() time.Time
}

// StepsError reports that a rendering takes more steps than allowed.
type StepsError struct{ Limit int }

func (e *StepsError) Error() string {
	return fmt.Sprintf("the template takes more than %d steps", e.Limit) // bound: a number
}

// Meter counts the bytes and the steps of one rendering and creates all its values: nothing else
// in this package allocates by the size of a value. After the first error its methods do nothing.
type Meter struct {
	limits Limits
	steps  int
	used   int64 // bytes of values
	room   int64 // bytes that Limits.Room has granted
	nested int   // levels of the current walk
	err    error // the first one
}

// NewMeter returns a meter for one rendering and its variables.
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
	// roomStep is the least that Limits.Room is asked for at a time, in bytes.
	roomStep = 16 << 10
	// endedStep is the number of steps between two calls of Limits.Ended.
	endedStep = 1 << 10
	// readStep is the number of bytes of text that are read in a step.
	readStep = 1 << 10
	// slotCost is the size of a list element, with a small value on the heap.
	slotCost = 48
	// dictCost is the size of an empty dict, memberCost of a member, and indexCost of an entry
	// in the index of a large dict.
	dictCost, memberCost, indexCost = 64, 64, 64
	// maxNested bounds the nesting of values.
	maxNested = 1000
)

// Err returns the error that has ended the rendering, or nil.
func (m *Meter) Err() error { return m.err }

// Fail ends the rendering with err, unless it has already ended.
func (m *Meter) Fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// failf ends the rendering and returns no value.
func (m *Meter) failf(format string, args ...any) Value {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
	return nil
}

// Take counts n bytes that are about to be allocated. It reports whether they may be.
func (m *Meter) Take(n int) bool {
	if m.err != nil {
		return false
	}
	m.used += int64(n)
	if m.used <= m.room || m.limits.Room == nil {
		return true
	}
	more := max(m.used-m.room, roomStep)
	if m.err = m.limits.Room(more); m.err != nil {
		m.used -= int64(n)
		return false
	}
	m.room += more
	return true
}

// give returns n bytes that are no longer used.
func (m *Meter) give(n int) { m.used -= int64(n) }

// step counts a step and reports whether the rendering goes on.
func (m *Meter) step() bool { return m.count(1) }

// read counts the steps of reading n bytes.
func (m *Meter) read(n int) bool { return m.count(n / readStep) }

func (m *Meter) count(steps int) bool {
	if m.err != nil {
		return false
	}
	before := m.steps
	if m.steps += steps; m.steps > m.limits.Steps {
		m.err = &StepsError{m.limits.Steps}
	} else if m.limits.Ended != nil && before/endedStep != m.steps/endedStep {
		m.err = m.limits.Ended()
	}
	return m.err == nil
}

// inside counts one level of nesting until outside is called.
func (m *Meter) inside() bool {
	if m.nested++; m.nested > maxNested {
		m.Fail(errors.New("values nest too deeply"))
	}
	return m.step()
}

func (m *Meter) outside() { m.nested-- }

// each walks over a list until the rendering ends.
func (m *Meter) each(list List) iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		for i, v := range list {
			if m.err != nil || !yield(i, v) {
				return
			}
		}
	}
}

// made returns n zero elements, or nil once the rendering has ended.
func made[T any](m *Meter, n int) []T {
	if !m.Take(n * int(reflect.TypeFor[T]().Size())) {
		return nil
	}
	return make([]T, n) // bound: taken
}

// list returns an empty list with room for n elements.
func (m *Meter) list(n int) List {
	if !m.Take(slotCost * (n + 1)) {
		return nil
	}
	return make(List, 0, n) // bound: taken
}

// build returns a list of n elements.
func (m *Meter) build(n int, element func(i int) Value) List {
	list := m.list(n)
	for i := 0; i < n && m.err == nil; i++ {
		list = m.Append(list, element(i))
	}
	return list
}

// Append appends v to a list that has no other user.
func (m *Meter) Append(l List, v Value) List {
	if !m.step() {
		return l
	}
	if len(l) == cap(l) {
		larger := max(2, 2*cap(l))
		if !m.Take(slotCost * larger) {
			return l
		}
		m.give(slotCost * cap(l))
		l = append(make(List, 0, larger), l...) // bound: taken
	}
	return append(l, v) // bound: there is room
}

// Dict returns an empty dict.
func (m *Meter) Dict() *Dict {
	m.Take(dictCost)
	return &Dict{}
}

// Set gives a member of d its value.
func (m *Meter) Set(d *Dict, name string, v Value) {
	if !m.step() {
		return
	}
	if i := d.find(name); i >= 0 {
		d.members[i].value = v
		return
	}
	if d.index == nil && len(d.members) >= indexFrom {
		if !m.Take(indexCost * len(d.members)) {
			return
		}
		d.index = make(map[string]int, 2*len(d.members)) // bound: taken
		for i, one := range d.members {
			d.index[one.name] = i // bound: taken
		}
	}
	if d.index != nil {
		if !m.Take(indexCost) {
			return
		}
		d.index[name] = len(d.members) // bound: taken
	}
	d.members = m.bind(d.members, name, v)
}

// bind appends a member.
func (m *Meter) bind(to []member, name string, v Value) []member {
	if len(to) == cap(to) {
		larger := max(2, 2*cap(to))
		if !m.Take(memberCost * larger) {
			return to
		}
		m.give(memberCost * cap(to))
		to = append(make([]member, 0, larger), to...) // bound: taken
	}
	return append(to, member{name, v}) // bound: there is room
}

// Text returns b as a text.
func (m *Meter) Text(b []byte) string {
	if !m.Take(len(b)) || !m.read(len(b)) {
		return ""
	}
	return string(b) // bound: taken
}

// repeated returns a text n times.
func (m *Meter) repeated(s string, n int) string {
	if !m.Take(len(s) * n) {
		return ""
	}
	return strings.Repeat(s, n) // bound: taken
}

// replaced replaces the first count occurrences of old, or all if count is negative.
func (m *Meter) replaced(s, old, with string, count int) string {
	if !m.read(2 * len(s)) {
		return ""
	}
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 || old == with {
		return s
	}
	if !m.Take(len(s) + n*len(with)) {
		return ""
	}
	return strings.Replace(s, old, with, n) // bound: taken
}

// writer builds a text, until its rendering ends.
type writer struct {
	m     *Meter
	b     strings.Builder
	taken int // bytes that the meter has counted
	print [32]byte
}

// grow makes room for n bytes.
func (w *writer) grow(n int) bool {
	if w.m.err != nil {
		return false
	}
	if has := w.b.Cap(); has-w.b.Len() < n {
		larger := 2*has + n // as Builder.Grow does it
		if !w.m.Take(larger) {
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

// hex writes a prefix and a hexadecimal number with leading zeros.
func (w *writer) hex(prefix string, n rune, digits int) {
	w.text(prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		w.byte("0123456789abcdef"[n>>shift&15])
	}
}

// value returns the text.
func (w *writer) value() string {
	if w.m.err != nil {
		return ""
	}
	return w.b.String()
}
