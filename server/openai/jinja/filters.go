package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// filter makes a value of another one.
type filter func(r *run, v Value, a *arguments) (Value, error)

// filterNamed returns a filter, nil if there is none of that name.
func filterNamed(name string) filter {
	switch name { // those that look for others
	case "map":
		return filterMap
	case "select", "reject":
		return chosen(false, name == "select")
	case "selectattr", "rejectattr":
		return chosen(true, name == "selectattr")
	}
	return filters[name]
}

var filters = map[string]filter{
	"abs": filterAbs, "capitalize": ofText(capitalize), "count": filterLength, "d": filterDefault, "default": filterDefault,
	"dictsort": filterDictSort, "e": filterEscape, "escape": filterEscape, "first": filterFirst, "float": filterFloat,
	"format": filterFormat, "indent": filterIndent, "int": filterInt, "items": filterItems, "join": filterJoin, "last": filterLast,
	"length": filterLength, "list": filterList, "lower": ofText(lower), "max": extreme(false), "min": extreme(true),
	"replace": filterReplace, "reverse": filterReverse, "round": filterRound, "safe": filterString, "sort": filterSort,
	"string": filterString, "sum": filterSum, "title": ofText(title), "tojson": filterToJSON, "trim": filterTrim,
	"unique": filterUnique, "upper": ofText(upper), "wordcount": filterWordCount,
}

// caser returns a function that changes the characters of a text, which it gets in order.
type caser func() func(rune) rune

func lower() func(rune) rune { return unicode.ToLower }
func upper() func(rune) rune { return unicode.ToUpper }

func capitalize() func(rune) rune {
	inside := false
	return func(c rune) rune {
		if inside {
			return unicode.ToLower(c)
		}
		inside = true
		return unicode.ToUpper(c)
	}
}

// title begins each word with a capital.
func title() func(rune) rune {
	inside := false
	return func(c rune) rune {
		defer func() { inside = unicode.IsLetter(c) || c == '\'' }()
		if inside {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}
}

// ofText makes a filter of a change of characters.
func ofText(change caser) filter {
	return func(r *run, v Value, _ *arguments) (Value, error) {
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		return r.mapped(s, change())
	}
}

// mapped returns a text with its characters changed.
func (m *Meter) mapped(s string, change func(rune) rune) (string, error) {
	if err := m.read(len(s)); err != nil {
		return "", err
	}
	w := writer{m: m}
	w.grow(len(s))
	for _, c := range s {
		if w.rune(change(c)); w.err != nil {
			break
		}
	}
	return w.value()
}

func filterAbs(_ *run, v Value, _ *arguments) (Value, error) {
	if n, ok := asInt(v); ok {
		return max(n, -n), nil
	}
	if x, ok := v.(float64); ok {
		return math.Abs(x), nil
	}
	return nil, fmt.Errorf("bad operand type for abs(): '%s'", typeName(v))
}

func filterLength(r *run, v Value, _ *arguments) (Value, error) {
	n, err := r.length(v)
	return int64(n), err
}

func filterDefault(_ *run, v Value, a *arguments) (Value, error) {
	otherwise, ok := a.at(0, "default_value")
	if !ok {
		otherwise = ""
	}
	falsy, _ := a.at(1, "boolean")
	if _, undefined := v.(Undefined); undefined || truth(falsy) && !truth(v) {
		return otherwise, nil
	}
	return v, nil
}

var escapes = map[byte]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}

func filterEscape(r *run, v Value, _ *arguments) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if err := r.read(len(s)); err != nil {
		return nil, err
	}
	w := writer{m: r.Meter}
	for s != "" && w.err == nil {
		n := strings.IndexAny(s, `&<>'"`)
		if n < 0 {
			w.text(s)
			break
		}
		w.text(s[:n])
		w.text(escapes[s[n]])
		s = s[n+1:]
	}
	return w.value()
}

// mostDigits bounds the text of a number, as Python does for integers.
const mostDigits = 4300

// digits returns a text without the blanks around it, and "" if it is too long for a number.
func digits(v Value) string {
	s, _ := v.(string)
	if s = strings.TrimSpace(s); len(s) > mostDigits {
		return ""
	}
	return s
}

func filterFloat(_ *run, v Value, a *arguments) (Value, error) {
	if x, ok := asFloat(v); ok {
		return x, nil
	}
	if x, err := strconv.ParseFloat(digits(v), 64); err == nil {
		return x, nil
	}
	if otherwise, ok := a.at(0, "default"); ok {
		return otherwise, nil
	}
	return 0.0, nil
}

func filterInt(_ *run, v Value, a *arguments) (Value, error) {
	if n, ok := asInt(v); ok {
		return n, nil
	}
	x, ok := v.(float64)
	if !ok {
		text := digits(v)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		var err error
		x, err = strconv.ParseFloat(text, 64)
		ok = err == nil
	}
	if ok && math.Abs(x) < 1<<63 {
		return int64(x), nil
	}
	if otherwise, ok := a.at(0, "default"); ok {
		return otherwise, nil
	}
	return int64(0), nil
}

func filterFormat(r *run, v Value, a *arguments) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	return r.formatted(s, List(a.list))
}

func filterIndent(r *run, v Value, a *arguments) (Value, error) {
	width, _ := a.at(0, "width")
	with := blanks[:4]
	switch width := width.(type) {
	case string:
		with = width
	case int64:
		with = blanks[:min(max(width, 0), int64(len(blanks)))]
	}
	first, _ := a.at(1, "first")
	blank, _ := a.at(2, "blank")
	rest, err := r.str(v)
	if err != nil {
		return nil, err
	}
	w := writer{m: r.Meter}
	for i, more := 0, true; more && w.err == nil; i++ {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		if (i > 0 || truth(first)) && (line != "" || truth(blank)) {
			w.text(with)
		}
		w.text(line)
		if more {
			w.byte('\n')
		}
	}
	return w.value()
}

func filterReplace(r *run, v Value, a *arguments) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	return replace(r, s, a)
}

// replace is Python's str.replace.
func replace(r *run, s string, a *arguments) (Value, error) {
	count, err := a.int(2, "count", -1)
	if err != nil {
		return nil, err
	}
	old, err := a.text(r.Meter, 0, "old", "")
	if err != nil {
		return nil, err
	}
	with, err := a.text(r.Meter, 1, "new", "")
	if err != nil {
		return nil, err
	}
	return r.replaced(s, old, with, count)
}

func filterRound(r *run, v Value, a *arguments) (Value, error) {
	x, ok := asFloat(v)
	if !ok {
		return nil, fmt.Errorf("type %s doesn't define __round__ method", typeName(v))
	}
	precision, err := a.int(0, "precision", 0)
	if err != nil {
		return nil, err
	}
	method, err := a.text(r.Meter, 1, "method", "common")
	if err != nil {
		return nil, err
	}
	scale := math.Pow(10, float64(precision))
	switch method {
	case "ceil":
		return math.Ceil(x*scale) / scale, nil
	case "floor":
		return math.Floor(x*scale) / scale, nil
	}
	return math.RoundToEven(x*scale) / scale, nil
}

func filterString(r *run, v Value, _ *arguments) (Value, error) { return r.str(v) }

func filterTrim(r *run, v Value, a *arguments) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	return stripped(r, s, a, strings.TrimSpace, strings.Trim)
}

// stripped trims blanks, or the characters that an argument has.
func stripped(r *run, s string, a *arguments, blanks func(string) string, these func(s, set string) string) (Value, error) {
	chars, err := a.text(r.Meter, 0, "chars", "")
	if err != nil {
		return nil, err
	}
	if set, given := a.at(0, "chars"); !given || set == nil {
		return blanks(s), r.read(len(s))
	}
	if err := r.count((len(s)/readStep + 1) * len(chars)); err != nil {
		return nil, err
	}
	return these(s, chars), nil
}

func filterWordCount(r *run, v Value, _ *arguments) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n, err := r.wordCount(s)
	return int64(n), err
}

// wordCount counts the words of a text.
func (m *Meter) wordCount(s string) (n int, err error) {
	for _, more := word(&s); more; _, more = word(&s) {
		if n++; n%readStep == 0 {
			if err := m.step(); err != nil {
				return 0, err
			}
		}
	}
	return n, m.read(len(s))
}

// word takes the first word off a text.
func word(s *string) (first string, ok bool) {
	rest := strings.TrimLeftFunc(*s, unicode.IsSpace)
	end := strings.IndexFunc(rest, unicode.IsSpace)
	if end < 0 {
		end = len(rest)
	}
	first, *s = rest[:end], rest[end:]
	return first, first != ""
}
