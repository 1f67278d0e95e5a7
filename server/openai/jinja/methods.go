package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// method returns a method of Python's type of a value.
func method(of Value, name string) (Value, bool) {
	switch of := of.(type) {
	case string:
		if m, ok := textMethods[name]; ok {
			return function(func(r *run, a *arguments) (Value, error) { return m(r, of, a) }), true
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok && !of.namespace {
			return function(func(r *run, a *arguments) (Value, error) { return m(r, of, a) }), true
		}
	case List:
		if m, ok := listMethods[name]; ok {
			return function(func(r *run, a *arguments) (Value, error) { return m(r, of, a) }), true
		}
	}
	return nil, false
}

var listMethods = map[string]func(r *run, l List, a *arguments) (Value, error){
	"index": func(r *run, l List, a *arguments) (Value, error) {
		v, _ := a.at(0, "value")
		i, err := r.index(l, v)
		if i < 0 && err == nil {
			err = fmt.Errorf("%s is not in list", typeName(v))
		}
		return int64(i), err
	},
	"count": func(r *run, l List, a *arguments) (Value, error) {
		v, _ := a.at(0, "value")
		n := int64(0)
		for len(l) > 0 {
			i, err := r.index(l, v)
			if err != nil {
				return nil, err
			}
			if i < 0 {
				break
			}
			n++
			l = l[i+1:]
		}
		return n, nil
	},
}

var dictMethods = map[string]func(r *run, d *Dict, a *arguments) (Value, error){
	"get": func(_ *run, d *Dict, a *arguments) (Value, error) {
		name, _ := a.at(0, "key")
		if name, ok := name.(string); ok {
			if v, ok := d.member(name); ok {
				return v, nil
			}
		}
		otherwise, _ := a.at(1, "default")
		return otherwise, nil
	},
	"items": func(r *run, d *Dict, _ *arguments) (Value, error) { return r.pairs(d) },
	"keys":  func(r *run, d *Dict, _ *arguments) (Value, error) { return r.items(d) },
	"values": func(r *run, d *Dict, _ *arguments) (Value, error) {
		list, err := r.list(len(d.members))
		for i := 0; err == nil && i < len(d.members); i++ {
			list, err = r.Append(list, d.members[i].value)
		}
		return list, err
	},
	"copy": func(_ *run, d *Dict, _ *arguments) (Value, error) { return d, nil }, // nothing changes it
}

type textMethod func(r *run, s string, a *arguments) (Value, error)

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
	"islower": func(r *run, s string, _ *arguments) (Value, error) { return tests["lower"](r.Meter, s, nil) },
	"isupper": func(r *run, s string, _ *arguments) (Value, error) { return tests["upper"](r.Meter, s, nil) },

	"count": func(r *run, s string, a *arguments) (Value, error) {
		part, err := a.text(r.Meter, 0, "sub", "")
		if err != nil {
			return nil, err
		}
		return int64(strings.Count(s, part)), r.read(len(s))
	},
	"join": func(r *run, s string, a *arguments) (Value, error) {
		v, _ := a.at(0, "iterable")
		list, err := r.items(v)
		if err != nil {
			return nil, err
		}
		return r.join(s, list, func(v Value) (Value, error) {
			if _, ok := v.(string); !ok {
				return nil, fmt.Errorf("sequence item: expected str instance, %s found", typeName(v))
			}
			return v, nil
		})
	},
	"replace": replace,
	"split":   splitting(false),
	"rsplit":  splitting(true),
	"splitlines": func(r *run, s string, _ *arguments) (Value, error) {
		list, err := r.list(strings.Count(s, "\n") + 1)
		for more := s != ""; more && err == nil; {
			var line string
			if line, s, more = strings.Cut(s, "\n"); more {
				line = strings.TrimSuffix(line, "\r")
				more = s != ""
			}
			list, err = r.Append(list, line)
		}
		return list, err
	},
	"partition": func(r *run, s string, a *arguments) (Value, error) {
		between, err := a.text(r.Meter, 0, "sep", "")
		if err != nil {
			return nil, err
		}
		before, after, found := strings.Cut(s, between)
		if !found {
			between = ""
		}
		return List{before, between, after}, r.read(len(s)) // bound: three parts
	},
	"rpartition": func(r *run, s string, a *arguments) (Value, error) {
		between, err := a.text(r.Meter, 0, "sep", "")
		if err != nil {
			return nil, err
		}
		i := strings.LastIndex(s, between)
		if i < 0 {
			return List{"", "", s}, r.read(len(s)) // bound: three parts
		}
		return List{s[:i], between, s[i+len(between):]}, r.read(len(s)) // bound: three parts
	},
	"format": formatMethod,
}

func trimming(blanks func(string) string, these func(s, set string) string) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) { return stripped(r, s, a, blanks, these) }
}

func changing(change caser) textMethod {
	return func(r *run, s string, _ *arguments) (Value, error) { return r.mapped(s, change()) }
}

func cutting(cut func(s, part string) string) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) {
		part, err := a.text(r.Meter, 0, "part", "")
		return cut(s, part), err
	}
}

// affix makes startswith and endswith, which take one text or several.
func affix(has func(s, part string) bool) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) {
		v, _ := a.at(0, "part")
		list, ok := v.(List)
		if !ok {
			list = List{v} // bound: one
		}
		for _, part := range list {
			if err := r.step(); err != nil {
				return nil, err
			}
			text, ok := part.(string)
			if !ok {
				return nil, fmt.Errorf("first arg must be str or a tuple of str, not %s", typeName(part))
			}
			if has(s, text) {
				return true, nil
			}
		}
		return false, nil
	}
}

func finding(find func(s, part string) int, must bool) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) {
		part, err := a.text(r.Meter, 0, "sub", "")
		if err != nil {
			return nil, err
		}
		i := find(s, part)
		if i < 0 {
			if must {
				return nil, errors.New("substring not found")
			}
			return int64(-1), nil
		}
		n, err := r.length(s[:i])
		return int64(n), err
	}
}

func every(holds func(rune) bool) textMethod {
	return func(r *run, s string, _ *arguments) (Value, error) {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0, r.read(len(s))
	}
}

func splitting(fromEnd bool) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) {
		most, err := a.int(1, "maxsplit", -1)
		if err != nil {
			return nil, err
		}
		between, ok := a.at(0, "sep")
		if !ok || between == nil {
			if most < 0 {
				return r.words(s)
			}
			return nil, errors.New("split by blanks has no maxsplit here")
		}
		sep, err := r.str(between)
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, errors.New("empty separator")
		}
		return r.split(s, sep, most, fromEnd)
	}
}

// words returns the words of a text.
func (m *Meter) words(s string) (List, error) {
	n, err := m.wordCount(s)
	if err != nil {
		return nil, err
	}
	list, err := m.list(n)
	for err == nil {
		first, ok := word(&s)
		if !ok {
			break
		}
		list, err = m.Append(list, first)
	}
	return list, err
}

// split cuts a text at the first separators, or the last ones; at all of them if most is
// negative.
func (m *Meter) split(s, sep string, most int, fromEnd bool) (List, error) {
	if err := m.read(2 * len(s)); err != nil {
		return nil, err
	}
	n := strings.Count(s, sep)
	skipped := 0
	if most >= 0 && most < n {
		skipped, n = n-most, most
	}
	list, err := m.list(n + 1)
	if err != nil {
		return nil, err
	}
	if fromEnd && skipped > 0 {
		return m.splitEnd(list, s, sep, n)
	}
	for range n {
		before, after, _ := strings.Cut(s, sep)
		if list, err = m.Append(list, before); err != nil {
			return nil, err
		}
		s = after
	}
	return m.Append(list, s)
}

// splitEnd cuts a text at its last n separators, or at fewer if some of them overlap.
func (m *Meter) splitEnd(list List, s, sep string, n int) (_ List, err error) {
	for range n {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		if list, err = m.Append(list, s[i+len(sep):]); err != nil {
			return nil, err
		}
		s = s[:i]
	}
	list, err = m.Append(list, s)
	slices.Reverse(list)
	return list, err
}

// formatMethod is str.format with places and names alone.
func formatMethod(r *run, s string, a *arguments) (Value, error) {
	w := writer{m: r.Meter}
	next := 0
	for w.err == nil {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			w.text(s)
			break
		}
		if err := r.step(); err != nil {
			return nil, err
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
			return nil, fmt.Errorf("Single '%c' encountered in format string", c)
		}
		s = rest
		v, ok := a.name(name)
		if n, isPlace := place(name); name == "" || isPlace && n >= 0 {
			if name == "" {
				n = int64(next)
				next++
			}
			v, ok = a.at(int(n), "")
		}
		if !ok {
			return nil, fmt.Errorf("the format string has {%s}, and no argument for it", brief(name))
		}
		w.str(v)
	}
	return w.value()
}

// formatted is Python's "text" % values, for %s, %d, %r and %%.
func (r *run) formatted(s string, v Value) (Value, error) {
	list, ok := v.(List)
	if !ok {
		list = List{v} // bound: one
	}
	w := writer{m: r.Meter}
	for w.err == nil {
		before, rest, found := strings.Cut(s, "%")
		w.text(before)
		if !found {
			break
		}
		if err := r.step(); err != nil {
			return nil, err
		}
		if rest == "" {
			return nil, errors.New("incomplete format")
		}
		s = rest[1:]
		if rest[0] == '%' {
			w.byte('%')
			continue
		}
		if len(list) == 0 {
			return nil, errors.New("not enough arguments for format string")
		}
		switch one := list[0]; rest[0] {
		case 's':
			w.str(one)
		case 'r':
			w.repr(one)
		case 'd':
			x, ok := asFloat(one)
			if !ok {
				return nil, fmt.Errorf("%%d format: a real number is required, not %s", typeName(one))
			}
			w.text(strconv.FormatFloat(math.Trunc(x), 'f', 0, 64)) // bound: 310 digits
		default:
			return nil, fmt.Errorf("unsupported format character '%c'", rest[0])
		}
		list = list[1:]
	}
	return w.value()
}
