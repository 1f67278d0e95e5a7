package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// method returns a method of a value's type in Python.
func method(of Value, name string) (Value, bool) {
	switch of := of.(type) {
	case string:
		return boundMethod(textMethods, of, name)
	case *Dict:
		if !of.namespace {
			return boundMethod(dictMethods, of, name)
		}
	case List:
		return boundMethod(listMethods, of, name)
	}
	return nil, false
}

func boundMethod[T any](methods map[string]func(*run, T, *arguments) Value, of T, name string) (Value, bool) {
	m, ok := methods[name]
	if !ok {
		return nil, false
	}
	return function(func(r *run, a *arguments) Value { return m(r, of, a) }), true
}

var listMethods = map[string]func(r *run, l List, a *arguments) Value{
	"index": func(r *run, l List, a *arguments) Value {
		v := a.value(0, "value")
		i := r.index(l, v)
		if i < 0 {
			return r.failf("%s is not in list", typeName(v))
		}
		return int64(i)
	},
	"count": func(r *run, l List, a *arguments) Value {
		v, n := a.value(0, "value"), int64(0)
		for i := r.index(l, v); i >= 0; i = r.index(l, v) {
			n++
			l = l[i+1:]
		}
		return n
	},
}

var dictMethods = map[string]func(r *run, d *Dict, a *arguments) Value{
	"get": func(_ *run, d *Dict, a *arguments) Value {
		if name, ok := a.value(0, "key").(string); ok {
			if v, ok := d.member(name); ok {
				return v
			}
		}
		return a.value(1, "default")
	},
	"items": func(r *run, d *Dict, _ *arguments) Value { return r.pairs(d) },
	"keys":  func(r *run, d *Dict, _ *arguments) Value { return r.items(d) },
	"values": func(r *run, d *Dict, _ *arguments) Value {
		return r.build(len(d.members), func(i int) Value { return d.members[i].value })
	},
	"copy": func(_ *run, d *Dict, _ *arguments) Value { return d }, // dicts do not change
}

type textMethod = func(r *run, s string, a *arguments) Value

var textMethods = map[string]textMethod{
	"strip":  trimming(strings.TrimSpace, strings.Trim),
	"lstrip": trimming(func(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }, strings.TrimLeft),
	"rstrip": trimming(func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }, strings.TrimRight),

	"lower": changing(lower), "upper": changing(upper), "title": changing(title), "capitalize": changing(capitalize),
	"casefold": changing(lower),

	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"removeprefix": cutting(strings.TrimPrefix), "removesuffix": cutting(strings.TrimSuffix),

	"find":  finding(strings.Index, false),
	"rfind": finding(strings.LastIndex, false),
	"index": finding(strings.Index, true),

	"isdigit": every(unicode.IsDigit), "isnumeric": every(unicode.IsNumber), "isalpha": every(unicode.IsLetter), "isspace": every(unicode.IsSpace),
	"isalnum": every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
	"islower": func(_ *run, s string, a *arguments) Value { return tests["lower"](s, a) },
	"isupper": func(_ *run, s string, a *arguments) Value { return tests["upper"](s, a) },

	"count": func(r *run, s string, a *arguments) Value {
		r.read(len(s))
		return int64(strings.Count(s, a.text(0, "sub", "")))
	},
	"join": func(r *run, s string, a *arguments) Value {
		return r.join(s, r.items(a.value(0, "iterable")), func(v Value) Value {
			if _, ok := v.(string); !ok {
				return r.failf("sequence item: expected str instance, %s found", typeName(v))
			}
			return v
		})
	},
	"replace": replace,
	"split":   splitting(false),
	"rsplit":  splitting(true),
	"splitlines": func(r *run, s string, _ *arguments) Value {
		list := r.list(strings.Count(s, "\n") + 1)
		for s != "" && r.err == nil {
			line, rest, more := strings.Cut(s, "\n")
			if more {
				line = strings.TrimSuffix(line, "\r")
			}
			list, s = r.Append(list, line), rest
		}
		return list
	},
	"partition": func(r *run, s string, a *arguments) Value {
		between := a.text(0, "sep", "")
		r.read(len(s))
		before, after, found := strings.Cut(s, between)
		if !found {
			between = ""
		}
		return List{before, between, after} // bound: three parts
	},
	"rpartition": func(r *run, s string, a *arguments) Value {
		between := a.text(0, "sep", "")
		r.read(len(s))
		i := strings.LastIndex(s, between)
		if i < 0 {
			return List{"", "", s} // bound: three parts
		}
		return List{s[:i], between, s[i+len(between):]} // bound: three parts
	},
	"format": formatMethod,
}

func trimming(blanks func(string) string, these func(s, set string) string) textMethod {
	return func(r *run, s string, a *arguments) Value { return stripped(r, s, a, blanks, these) }
}

func changing(change caser) textMethod {
	return func(r *run, s string, _ *arguments) Value { return r.mapped(s, change()) }
}

func cutting(cut func(s, part string) string) textMethod {
	return func(_ *run, s string, a *arguments) Value { return cut(s, a.text(0, "part", "")) }
}

// affix returns startswith or endswith, which take one text or several.
func affix(has func(s, part string) bool) textMethod {
	return func(r *run, s string, a *arguments) Value {
		v := a.value(0, "part")
		list, ok := v.(List)
		if !ok {
			list = List{v} // bound: one
		}
		for _, part := range r.each(list) {
			r.step()
			text, ok := part.(string)
			if !ok {
				return r.failf("first arg must be str or a tuple of str, not %s", typeName(part))
			}
			if has(s, text) {
				return true
			}
		}
		return false
	}
}

func finding(find func(s, part string) int, must bool) textMethod {
	return func(r *run, s string, a *arguments) Value {
		i := find(s, a.text(0, "sub", ""))
		switch {
		case i >= 0:
			return int64(r.length(s[:i]))
		case must:
			return r.failf("substring not found")
		}
		return int64(-1)
	}
}

func every(holds func(rune) bool) textMethod {
	return func(r *run, s string, _ *arguments) Value {
		r.read(len(s))
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0
	}
}

func splitting(fromEnd bool) textMethod {
	return func(r *run, s string, a *arguments) Value {
		most := a.int(1, "maxsplit", -1)
		between := a.value(0, "sep")
		if between == nil {
			if most < 0 {
				return r.words(s)
			}
			return r.failf("split by blanks has no maxsplit here")
		}
		sep := r.str(between)
		if sep == "" {
			return r.failf("empty separator")
		}
		return r.split(s, sep, most, fromEnd)
	}
}

// words returns the words of a text.
func (m *Meter) words(s string) List {
	return m.build(m.wordCount(s), func(int) Value {
		first, _ := word(&s)
		return first
	})
}

// split splits a text at its first separators, or at its last ones; at all of them if most is
// negative.
func (m *Meter) split(s, sep string, most int, fromEnd bool) List {
	if !m.read(2 * len(s)) {
		return nil
	}
	n := strings.Count(s, sep)
	if most >= 0 && most < n {
		if fromEnd {
			return m.splitEnd(s, sep, most)
		}
		n = most
	}
	return m.build(n+1, func(i int) Value {
		if i == n {
			return s
		}
		before, after, _ := strings.Cut(s, sep)
		s = after
		return before
	})
}

// splitEnd splits a text at its last n separators, or at fewer if some of them overlap.
func (m *Meter) splitEnd(s, sep string, n int) List {
	list := m.list(n + 1)
	for range n {
		i := strings.LastIndex(s, sep)
		if i < 0 || m.err != nil {
			break
		}
		list = m.Append(list, s[i+len(sep):])
		s = s[:i]
	}
	list = m.Append(list, s)
	slices.Reverse(list)
	return list
}

// formatMethod is str.format with positions and names only.
func formatMethod(r *run, s string, a *arguments) Value {
	w := writer{m: r.Meter}
	next := 0
	for r.step() {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			w.text(s)
			break
		}
		w.text(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			w.byte(c)
			s = s[1:]
			continue
		}
		name, rest, found := strings.Cut(s, "}")
		if c == '}' || !found {
			return r.failf("Single '%c' encountered in format string", c)
		}
		s = rest
		v, ok := a.name(name)
		if n, isIndex := parseIndex(name); name == "" || isIndex && n >= 0 {
			if name == "" {
				n = int64(next)
				next++
			}
			v, ok = a.at(int(n), "")
		}
		if !ok {
			return r.failf("the format string has {%s}, and no argument for it", brief(name))
		}
		w.str(v)
	}
	return w.value()
}

// formatted is Python's "text" % values, for %s, %d, %r and %%.
func (m *Meter) formatted(s string, v Value) Value {
	list, ok := v.(List)
	if !ok {
		list = List{v} // bound: one
	}
	w := writer{m: m}
	for m.step() {
		before, rest, found := strings.Cut(s, "%")
		w.text(before)
		if !found {
			break
		}
		if rest == "" {
			return m.failf("incomplete format")
		}
		s = rest[1:]
		if rest[0] == '%' {
			w.byte('%')
			continue
		}
		if len(list) == 0 {
			return m.failf("not enough arguments for format string")
		}
		w.formatOne(rest[0], list[0])
		list = list[1:]
	}
	return w.value()
}

func (w *writer) formatOne(directive byte, v Value) {
	switch directive {
	case 's':
		w.str(v)
	case 'r':
		w.repr(v)
	case 'd':
		x, ok := asFloat(v)
		if !ok {
			w.m.failf("%%d format: a real number is required, not %s", typeName(v))
		}
		w.text(strconv.FormatFloat(math.Trunc(x), 'f', 0, 64)) // bound: 310 digits
	default:
		w.m.failf("unsupported format character '%c'", directive)
	}
}
