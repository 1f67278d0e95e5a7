package jinja

import (
	"errors"
	"fmt"
	"math"
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
		switch name {
		case "index":
			return function(func(_ *run, a *arguments) (Value, error) {
				v, _ := a.at(0, "value")
				for i, e := range of {
					if equal(e, v) {
						return int64(i), nil
					}
				}
				return nil, fmt.Errorf("%s is not in list", str(v))
			}), true
		case "count":
			return function(func(_ *run, a *arguments) (Value, error) {
				v, _ := a.at(0, "value")
				n := int64(0)
				for _, e := range of {
					if equal(e, v) {
						n++
					}
				}
				return n, nil
			}), true
		}
	}
	return nil, false
}

var dictMethods = map[string]func(r *run, d *Dict, a *arguments) (Value, error){
	"get": func(_ *run, d *Dict, a *arguments) (Value, error) {
		name, _ := a.at(0, "key")
		if name, ok := name.(string); ok {
			if v, ok := d.values[name]; ok {
				return v, nil
			}
		}
		otherwise, _ := a.at(1, "default")
		return otherwise, nil
	},
	"items": func(_ *run, d *Dict, _ *arguments) (Value, error) { return pairsOf(d), nil },
	"keys":  func(_ *run, d *Dict, _ *arguments) (Value, error) { return items(d) },
	"values": func(_ *run, d *Dict, _ *arguments) (Value, error) {
		list := make(List, len(d.names))
		for i, name := range d.names {
			list[i] = d.values[name]
		}
		return list, nil
	},
	"copy": func(_ *run, d *Dict, _ *arguments) (Value, error) { return d, nil }, // nothing changes it
}

type textMethod func(r *run, s string, a *arguments) (Value, error)

var textMethods = map[string]textMethod{
	"strip":  trimming(strings.TrimSpace, strings.Trim),
	"lstrip": trimming(func(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }, strings.TrimLeft),
	"rstrip": trimming(func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }, strings.TrimRight),

	"lower": changing(strings.ToLower), "upper": changing(strings.ToUpper), "title": changing(title), "capitalize": changing(capitalize),
	"casefold": changing(strings.ToLower),

	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"removeprefix": cutting(strings.TrimPrefix), "removesuffix": cutting(strings.TrimSuffix),

	"find":  finding(strings.Index, false),
	"rfind": finding(strings.LastIndex, false),
	"index": finding(strings.Index, true),

	"isdigit": every(unicode.IsDigit), "isnumeric": every(unicode.IsNumber), "isalpha": every(unicode.IsLetter), "isspace": every(unicode.IsSpace),
	"isalnum": every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
	"islower": func(_ *run, s string, _ *arguments) (Value, error) { return tests["lower"](s, nil) },
	"isupper": func(_ *run, s string, _ *arguments) (Value, error) { return tests["upper"](s, nil) },

	"count": func(_ *run, s string, a *arguments) (Value, error) {
		return int64(strings.Count(s, a.text(0, "sub", ""))), nil
	},
	"join": func(r *run, s string, a *arguments) (Value, error) {
		v, _ := a.at(0, "iterable")
		list, err := items(v)
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
	"replace": func(r *run, s string, a *arguments) (Value, error) {
		count, err := a.int(2, "count", -1)
		if err != nil {
			return nil, err
		}
		return r.replaced(s, a.text(0, "old", ""), a.text(1, "new", ""), count)
	},
	"split":  splitting(false),
	"rsplit": splitting(true),
	"splitlines": func(r *run, s string, _ *arguments) (Value, error) {
		s = strings.TrimSuffix(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
		if s == "" {
			return List{}, nil
		}
		return r.listed(strings.Split(s, "\n"))
	},
	"partition": func(_ *run, s string, a *arguments) (Value, error) {
		between := a.text(0, "sep", "")
		before, after, found := strings.Cut(s, between)
		if !found {
			between = ""
		}
		return List{before, between, after}, nil
	},
	"rpartition": func(_ *run, s string, a *arguments) (Value, error) {
		between := a.text(0, "sep", "")
		i := strings.LastIndex(s, between)
		if i < 0 {
			return List{"", "", s}, nil
		}
		return List{s[:i], between, s[i+len(between):]}, nil
	},
	"format": formatMethod,
}

func trimming(blanks func(string) string, these func(s, set string) string) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) { return r.made(stripped(s, a, blanks, these)) }
}

func changing(change func(string) string) textMethod {
	return func(r *run, s string, _ *arguments) (Value, error) { return r.made(change(s)) }
}

func cutting(cut func(s, part string) string) textMethod {
	return func(r *run, s string, a *arguments) (Value, error) { return r.made(cut(s, a.text(0, "part", ""))) }
}

// affix makes startswith and endswith, which take one text or several.
func affix(has func(s, part string) bool) textMethod {
	return func(_ *run, s string, a *arguments) (Value, error) {
		v, _ := a.at(0, "part")
		list, ok := v.(List)
		if !ok {
			list = List{v}
		}
		for _, part := range list {
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
	return func(_ *run, s string, a *arguments) (Value, error) {
		i := find(s, a.text(0, "sub", ""))
		if i < 0 {
			if must {
				return nil, errors.New("substring not found")
			}
			return int64(-1), nil
		}
		n, _ := length(s[:i])
		return int64(n), nil
	}
}

func every(holds func(rune) bool) textMethod {
	return func(_ *run, s string, _ *arguments) (Value, error) {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0, nil
	}
}

func (r *run) listed(parts []string) (Value, error) {
	list := make(List, len(parts))
	for i, part := range parts {
		list[i] = part
	}
	return list, r.spend(32 * len(parts))
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
				return r.listed(strings.Fields(s))
			}
			return nil, errors.New("split by blanks has no maxsplit here")
		}
		sep := str(between)
		if sep == "" {
			return nil, errors.New("empty separator")
		}
		if !fromEnd || most < 0 {
			if most >= 0 {
				most++
			}
			return r.listed(strings.SplitN(s, sep, most))
		}
		var back []string
		for range most {
			i := strings.LastIndex(s, sep)
			if i < 0 {
				break
			}
			back = append(back, s[i+len(sep):])
			s = s[:i]
		}
		parts := []string{s}
		for i := len(back) - 1; i >= 0; i-- {
			parts = append(parts, back[i])
		}
		return r.listed(parts)
	}
}

// formatMethod is str.format with places and names alone.
func formatMethod(r *run, s string, a *arguments) (Value, error) {
	var b strings.Builder
	next := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '{' && c != '}' {
			b.WriteByte(c)
			continue
		}
		if i+1 < len(s) && s[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		n := strings.IndexByte(s[i:], '}')
		if c == '}' || n < 0 {
			return nil, errors.New("Single '" + string(c) + "' encountered in format string")
		}
		name := s[i+1 : i+n]
		i += n
		var v Value
		var ok bool
		if name == "" {
			v, ok = a.at(next, "")
			next++
		} else if place, err := strconv.Atoi(name); err == nil && place >= 0 {
			v, ok = a.at(place, "")
		} else {
			v, ok = a.named[name]
		}
		if !ok {
			return nil, fmt.Errorf("the format string has {%s}, and no argument for it", name)
		}
		b.WriteString(str(v))
	}
	return r.made(b.String())
}

// formatted is Python's "text" % values, for %s, %d, %r and %%.
func (r *run) formatted(s string, v Value) (Value, error) {
	list, ok := v.(List)
	if !ok {
		list = List{v}
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "%")
		b.WriteString(before)
		if !found {
			break
		}
		if rest == "" {
			return nil, errors.New("incomplete format")
		}
		s = rest[1:]
		if rest[0] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(list) == 0 {
			return nil, errors.New("not enough arguments for format string")
		}
		switch one := list[0]; rest[0] {
		case 's':
			b.WriteString(str(one))
		case 'r':
			repr(&b, one)
		case 'd':
			x, ok := asFloat(one)
			if !ok {
				return nil, fmt.Errorf("%%d format: a real number is required, not %s", typeName(one))
			}
			fmt.Fprintf(&b, "%.0f", math.Trunc(x))
		default:
			return nil, fmt.Errorf("unsupported format character '%c'", rest[0])
		}
		list = list[1:]
	}
	return r.made(b.String())
}
