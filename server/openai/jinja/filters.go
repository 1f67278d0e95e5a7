package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// filter returns a value that is derived from v.
type filter func(r *run, v Value, a *arguments) Value

// filterNamed returns a filter, or nil.
func filterNamed(name string) filter {
	switch name { // filters that look up filters or tests, and so cannot be in the map
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

// caser returns a function that changes the case of a text's characters, in order.
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

// title begins each word with a capital letter.
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

// ofText returns the filter that changes the case of a text.
func ofText(change caser) filter {
	return func(r *run, v Value, _ *arguments) Value { return r.mapped(r.str(v), change()) }
}

// mapped returns a text with its characters changed.
func (m *Meter) mapped(s string, change func(rune) rune) string {
	w := writer{m: m}
	m.read(len(s))
	w.grow(len(s))
	for _, c := range s {
		if w.rune(change(c)); m.err != nil {
			break
		}
	}
	return w.value()
}

func filterAbs(r *run, v Value, _ *arguments) Value {
	if n, ok := asInt(v); ok {
		return max(n, -n)
	}
	if x, ok := v.(float64); ok {
		return math.Abs(x)
	}
	return r.failf("bad operand type for abs(): '%s'", typeName(v))
}

func filterLength(r *run, v Value, _ *arguments) Value { return int64(r.length(v)) }

func filterDefault(_ *run, v Value, a *arguments) Value {
	if _, undefined := v.(Undefined); !undefined && (truth(v) || !a.truth(1, "boolean")) {
		return v
	}
	if otherwise, ok := a.at(0, "default_value"); ok {
		return otherwise
	}
	return ""
}

var escapes = map[byte]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}

func filterEscape(r *run, v Value, _ *arguments) Value {
	s := r.str(v)
	r.read(len(s))
	w := writer{m: r.Meter}
	for s != "" && r.err == nil {
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

// digits returns a text without surrounding spaces, or "" if it is too long for a number.
func digits(v Value) string {
	s, _ := v.(string)
	if s = strings.TrimSpace(s); len(s) > mostDigits {
		return ""
	}
	return s
}

func filterFloat(_ *run, v Value, a *arguments) Value {
	if x, ok := asFloat(v); ok {
		return x
	}
	if x, err := strconv.ParseFloat(digits(v), 64); err == nil {
		return x
	}
	if otherwise, ok := a.at(0, "default"); ok {
		return otherwise
	}
	return 0.0
}

func filterInt(_ *run, v Value, a *arguments) Value {
	if n, ok := asInt(v); ok {
		return n
	}
	x, ok := v.(float64)
	if !ok {
		text := digits(v)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		var err error
		x, err = strconv.ParseFloat(text, 64)
		ok = err == nil
	}
	if ok && math.Abs(x) < 1<<63 {
		return int64(x)
	}
	if otherwise, ok := a.at(0, "default"); ok {
		return otherwise
	}
	return int64(0)
}

func filterFormat(r *run, v Value, a *arguments) Value { return r.formatted(r.str(v), List(a.list)) }

func filterIndent(r *run, v Value, a *arguments) Value {
	with := blanks[:4]
	switch width := a.value(0, "width").(type) {
	case string:
		with = width
	case int64:
		with = blanks[:min(max(width, 0), int64(len(blanks)))]
	}
	first, blank := a.truth(1, "first"), a.truth(2, "blank")
	rest := r.str(v)
	w := writer{m: r.Meter}
	for i, more := 0, true; more && r.err == nil; i++ {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		if (i > 0 || first) && (line != "" || blank) {
			w.text(with)
		}
		w.text(line)
		if more {
			w.byte('\n')
		}
	}
	return w.value()
}

func filterReplace(r *run, v Value, a *arguments) Value { return replace(r, r.str(v), a) }

// replace is Python's str.replace.
func replace(r *run, s string, a *arguments) Value {
	return r.replaced(s, a.text(0, "old", ""), a.text(1, "new", ""), a.int(2, "count", -1))
}

func filterRound(r *run, v Value, a *arguments) Value {
	x, ok := asFloat(v)
	if !ok {
		return r.failf("type %s doesn't define __round__ method", typeName(v))
	}
	scale := math.Pow(10, float64(a.int(0, "precision", 0)))
	switch a.text(1, "method", "common") {
	case "ceil":
		return math.Ceil(x*scale) / scale
	case "floor":
		return math.Floor(x*scale) / scale
	}
	return math.RoundToEven(x*scale) / scale
}

func filterString(r *run, v Value, _ *arguments) Value { return r.str(v) }

func filterTrim(r *run, v Value, a *arguments) Value {
	return stripped(r, r.str(v), a, strings.TrimSpace, strings.Trim)
}

// stripped trims spaces, or the characters of an argument.
func stripped(r *run, s string, a *arguments, blanks func(string) string, these func(s, set string) string) Value {
	if a.value(0, "chars") == nil {
		r.read(len(s))
		return blanks(s)
	}
	chars := a.text(0, "chars", "")
	if !r.count((len(s)/readStep + 1) * len(chars)) {
		return nil
	}
	return these(s, chars)
}

func filterWordCount(r *run, v Value, _ *arguments) Value { return int64(r.wordCount(r.str(v))) }

// wordCount counts the words of a text.
func (m *Meter) wordCount(s string) (n int) {
	m.read(len(s))
	for _, more := word(&s); more && m.err == nil; _, more = word(&s) {
		if n++; n%readStep == 0 {
			m.step()
		}
	}
	return n
}

// word removes the first word from a text and returns it.
func word(s *string) (first string, ok bool) {
	rest := strings.TrimLeftFunc(*s, unicode.IsSpace)
	end := strings.IndexFunc(rest, unicode.IsSpace)
	if end < 0 {
		end = len(rest)
	}
	first, *s = rest[:end], rest[end:]
	return first, first != ""
}
