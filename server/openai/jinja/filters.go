package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
	"length": filterLength, "list": filterList, "lower": ofText(strings.ToLower), "max": extreme(false), "min": extreme(true),
	"replace": filterReplace, "reverse": filterReverse, "round": filterRound, "safe": filterString, "sort": filterSort,
	"string": filterString, "sum": filterSum, "title": ofText(title), "tojson": filterToJSON, "trim": filterTrim,
	"unique": filterUnique, "upper": ofText(strings.ToUpper), "wordcount": filterWordCount,
}

// ofText makes a filter of a function on texts.
func ofText(change func(string) string) filter {
	return func(r *run, v Value, _ *arguments) (Value, error) { return r.made(change(str(v))) }
}

func capitalize(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + strings.ToLower(s[size:])
}

// title begins each word with a capital.
func title(s string) string {
	inside := false
	return strings.Map(func(c rune) rune {
		defer func() { inside = unicode.IsLetter(c) || c == '\'' }()
		if inside {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
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

func filterLength(_ *run, v Value, _ *arguments) (Value, error) {
	n, err := length(v)
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

func filterDictSort(_ *run, v Value, a *arguments) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("dictsort wants a dict, not %s", typeName(v))
	}
	pairs := pairsOf(d)
	byValue, reverse := a.text(1, "by", "key") == "value", false
	if back, ok := a.at(2, "reverse"); ok {
		reverse = truth(back)
	}
	cased, _ := a.at(0, "case_sensitive")
	return sorted(pairs, reverse, truth(cased), func(v Value) (Value, error) {
		if byValue {
			return v.(List)[1], nil
		}
		return v.(List)[0], nil
	})
}

func pairsOf(d *Dict) List {
	list := make(List, len(d.names))
	for i, name := range d.names {
		list[i] = List{name, d.values[name]}
	}
	return list
}

// sorted sorts by a key; texts without regard to case, unless cased.
func sorted(list List, reverse, cased bool, key func(Value) (Value, error)) (Value, error) {
	type keyed struct{ key, v Value }
	all := make([]keyed, len(list))
	for i, v := range list {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		if s, ok := k.(string); ok && !cased {
			k = strings.ToLower(s)
		}
		all[i] = keyed{k, v}
	}
	var failed error
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		before, err := less(a.key, b.key)
		if err != nil {
			failed = err
		}
		if before {
			return -1
		}
		if after, _ := less(b.key, a.key); after {
			return 1
		}
		return 0
	})
	result := make(List, len(all))
	for i := range all {
		result[i] = all[i].v
	}
	return result, failed
}

var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func filterEscape(r *run, v Value, _ *arguments) (Value, error) {
	return r.made(escapes.Replace(str(v)))
}

func filterFirst(_ *run, v Value, _ *arguments) (Value, error) {
	list, err := items(v)
	if err != nil || len(list) > 0 {
		return at(list, 0), err
	}
	return Undefined{"No first item, sequence was empty."}, nil
}

func filterLast(_ *run, v Value, _ *arguments) (Value, error) {
	list, err := items(v)
	if err != nil || len(list) > 0 {
		return at(list, len(list)-1), err
	}
	return Undefined{"No last item, sequence was empty."}, nil
}

func at(list List, i int) Value {
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

func filterFloat(_ *run, v Value, a *arguments) (Value, error) {
	if x, ok := asFloat(v); ok {
		return x, nil
	}
	if x, err := strconv.ParseFloat(strings.TrimSpace(str(v)), 64); err == nil {
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
		text := strings.TrimSpace(str(v))
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
	return r.formatted(str(v), List(a.list))
}

func filterIndent(r *run, v Value, a *arguments) (Value, error) {
	width, _ := a.at(0, "width")
	with := "    "
	switch width := width.(type) {
	case string:
		with = width
	case int64:
		with = strings.Repeat(" ", int(min(max(width, 0), 1000)))
	}
	first, _ := a.at(1, "first")
	blank, _ := a.at(2, "blank")
	lines := strings.Split(str(v), "\n")
	size := 0
	for i, line := range lines {
		if i == 0 && !truth(first) || line == "" && !truth(blank) {
			continue
		}
		size += len(line) + len(with)
		lines[i] = with + line
	}
	if err := r.spend(size); err != nil {
		return nil, err
	}
	return strings.Join(lines, "\n"), nil
}

func filterItems(_ *run, v Value, _ *arguments) (Value, error) {
	if _, ok := v.(Undefined); ok {
		return List{}, nil
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, errors.New("Can only get item pairs from a mapping.")
	}
	return pairsOf(d), nil
}

func filterJoin(r *run, v Value, a *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	name, byName := a.at(1, "attribute")
	return r.join(a.text(0, "d", ""), list, func(v Value) (Value, error) {
		if byName && name != nil {
			return path(v, name)
		}
		return v, nil
	})
}

// join puts the texts of values together.
func (r *run) join(between string, list List, of func(Value) (Value, error)) (Value, error) {
	var b strings.Builder
	for i, v := range list {
		v, err := of(v)
		if err != nil {
			return nil, err
		}
		s := str(v)
		if err := r.spend(len(s) + len(between)); err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// path returns a member of members: "a.b.0".
func path(v, name Value) (Value, error) {
	if n, ok := name.(int64); ok {
		return item(v, n)
	}
	for _, part := range strings.Split(str(name), ".") {
		var err error
		if n, bad := strconv.ParseInt(part, 10, 32); bad == nil {
			v, err = item(v, n)
		} else {
			v, err = item(v, part)
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

func filterList(r *run, v Value, _ *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	return append(List{}, list...), r.spend(16 * len(list))
}

// filterMap applies a filter to each item, or takes an attribute of each.
func filterMap(r *run, v Value, a *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	one := func(v Value) (Value, error) {
		got, err := path(v, a.named["attribute"])
		if _, undefined := got.(Undefined); undefined && err == nil {
			if otherwise, ok := a.named["default"]; ok {
				return otherwise, nil
			}
		}
		return got, err
	}
	if len(a.list) > 0 {
		apply := filterNamed(str(a.list[0]))
		if apply == nil {
			return nil, fmt.Errorf("No filter named '%s'.", str(a.list[0]))
		}
		rest := &arguments{list: a.list[1:], named: a.named}
		one = func(v Value) (Value, error) { return apply(r, v, rest) }
	}
	result := make(List, 0, len(list))
	for _, v := range list {
		if err := r.step(); err != nil {
			return nil, err
		}
		got, err := one(v)
		if err != nil {
			return nil, err
		}
		result = append(result, got)
	}
	return result, nil
}

// chosen makes select, reject and their forms for attributes.
func chosen(byAttribute, keep bool) filter {
	return func(r *run, v Value, a *arguments) (Value, error) {
		list, err := items(v)
		if err != nil {
			return nil, err
		}
		rest := a.list
		var name Value
		if byAttribute {
			if len(rest) == 0 {
				return nil, errors.New("Missing parameter for attribute name")
			}
			name, rest = rest[0], rest[1:]
		}
		holds := func(v Value, _ *arguments) (bool, error) { return truth(v), nil }
		if len(rest) > 0 {
			if holds = tests[str(rest[0])]; holds == nil {
				return nil, fmt.Errorf("No test named '%s'.", str(rest[0]))
			}
			rest = rest[1:]
		}
		result := List{}
		for _, v := range list {
			if err := r.step(); err != nil {
				return nil, err
			}
			of := v
			if byAttribute {
				if of, err = path(v, name); err != nil {
					return nil, err
				}
			}
			ok, err := holds(of, &arguments{list: rest})
			if err != nil {
				return nil, err
			}
			if ok == keep {
				result = append(result, v)
			}
		}
		return result, nil
	}
}

func extreme(lowest bool) filter {
	return func(_ *run, v Value, a *arguments) (Value, error) {
		list, err := items(v)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return Undefined{"No aggregated item, sequence was empty."}, nil
		}
		name, byName := a.named["attribute"]
		key := func(v Value) (Value, error) {
			if byName {
				return path(v, name)
			}
			return v, nil
		}
		order, err := sorted(list, !lowest, false, key)
		if err != nil {
			return nil, err
		}
		return order.(List)[0], nil
	}
}

func filterReplace(r *run, v Value, a *arguments) (Value, error) {
	count, err := a.int(2, "count", -1)
	if err != nil {
		return nil, err
	}
	return r.replaced(str(v), a.text(0, "old", ""), a.text(1, "new", ""), count)
}

func (r *run) replaced(s, old, with string, count int) (Value, error) {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if err := r.spend(len(s) + n*len(with)); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, with, n), nil
}

func filterReverse(r *run, v Value, _ *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	back := append(List{}, list...)
	slices.Reverse(back)
	if _, isText := v.(string); isText {
		return r.join("", back, func(v Value) (Value, error) { return v, nil })
	}
	return back, r.spend(16 * len(back))
}

func filterRound(_ *run, v Value, a *arguments) (Value, error) {
	x, ok := asFloat(v)
	if !ok {
		return nil, fmt.Errorf("type %s doesn't define __round__ method", typeName(v))
	}
	precision, err := a.int(0, "precision", 0)
	if err != nil {
		return nil, err
	}
	scale := math.Pow(10, float64(precision))
	switch a.text(1, "method", "common") {
	case "ceil":
		return math.Ceil(x*scale) / scale, nil
	case "floor":
		return math.Floor(x*scale) / scale, nil
	}
	return math.RoundToEven(x*scale) / scale, nil
}

func filterSort(_ *run, v Value, a *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	reverse, _ := a.at(0, "reverse")
	cased, _ := a.at(1, "case_sensitive")
	name, byName := a.at(2, "attribute")
	return sorted(list, truth(reverse), truth(cased), func(v Value) (Value, error) {
		if byName && name != nil {
			return path(v, name)
		}
		return v, nil
	})
}

func filterString(r *run, v Value, _ *arguments) (Value, error) { return r.made(str(v)) }

func filterSum(r *run, v Value, a *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	name, byName := a.at(0, "attribute")
	sum, given := a.at(1, "start")
	if !given {
		sum = int64(0)
	}
	for _, v := range list {
		if byName && name != nil {
			if v, err = path(v, name); err != nil {
				return nil, err
			}
		}
		if sum, err = r.calculate("+", sum, v); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func filterTrim(r *run, v Value, a *arguments) (Value, error) {
	return r.made(stripped(str(v), a, strings.TrimSpace, strings.Trim))
}

// stripped trims blanks, or the characters that an argument has.
func stripped(s string, a *arguments, blanks func(string) string, these func(s, set string) string) string {
	if set, ok := a.at(0, "chars"); ok && set != nil {
		return these(s, str(set))
	}
	return blanks(s)
}

func filterUnique(_ *run, v Value, a *arguments) (Value, error) {
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	seen, kept := List{}, List{}
	for _, v := range list {
		key := v
		if name, ok := a.at(1, "attribute"); ok && name != nil {
			if key, err = path(v, name); err != nil {
				return nil, err
			}
		}
		if s, ok := key.(string); ok {
			key = strings.ToLower(s)
		}
		if in, _ := contains(seen, key); !in {
			seen, kept = append(seen, key), append(kept, v)
		}
	}
	return kept, nil
}

func filterWordCount(_ *run, v Value, _ *arguments) (Value, error) {
	return int64(len(strings.Fields(str(v)))), nil
}
