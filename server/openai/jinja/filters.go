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

func filterDictSort(r *run, v Value, a *arguments) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("dictsort wants a dict, not %s", typeName(v))
	}
	by, err := a.text(r.Meter, 1, "by", "key")
	if err != nil {
		return nil, err
	}
	pairs, err := r.pairs(d)
	if err != nil {
		return nil, err
	}
	cased, _ := a.at(0, "case_sensitive")
	reverse, _ := a.at(2, "reverse")
	return r.sorted(pairs, truth(reverse), truth(cased), func(v Value) (Value, error) {
		if by == "value" {
			return v.(List)[1], nil
		}
		return v.(List)[0], nil
	})
}

// pairs returns a list of name and value for each member of a dict.
func (m *Meter) pairs(d *Dict) (List, error) {
	list, err := m.list(len(d.members))
	for i := 0; err == nil && i < len(d.members); i++ {
		var pair List
		if pair, err = m.list(2); err == nil {
			pair = append(pair, d.members[i].name, d.members[i].value) // bound: there is room
			list, err = m.Append(list, pair)
		}
	}
	return list, err
}

// keyed is an element with what it is sorted by.
type keyed struct{ key, v Value }

// keyOf returns an element with its key. A text has none of its capitals in the key, unless
// cased.
func (m *Meter) keyOf(v Value, cased bool, key func(Value) (Value, error)) (keyed, error) {
	k, err := key(v)
	if s, ok := k.(string); ok && !cased && err == nil {
		k, err = m.mapped(s, unicode.ToLower)
	}
	return keyed{k, v}, err
}

// sorted sorts by a key.
func (m *Meter) sorted(list List, reverse, cased bool, key func(Value) (Value, error)) (Value, error) {
	all, err := made[keyed](m, len(list))
	if err != nil {
		return nil, err
	}
	for i, v := range list {
		if all[i], err = m.keyOf(v, cased, key); err != nil {
			return nil, err
		}
	}
	before := func(a, b keyed) (is bool) {
		if err == nil {
			err = m.step()
		}
		if err == nil {
			is, err = m.less(a.key, b.key)
		}
		return is && err == nil
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		switch {
		case before(a, b):
			return -1
		case before(b, a):
			return 1
		}
		return 0
	})
	if err != nil {
		return nil, err
	}
	result, err := m.list(len(all))
	for i := 0; err == nil && i < len(all); i++ {
		result, err = m.Append(result, all[i].v)
	}
	return result, err
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

func filterFirst(r *run, v Value, _ *arguments) (Value, error) {
	return r.end(v, 0, "No first item, sequence was empty.")
}

func filterLast(r *run, v Value, _ *arguments) (Value, error) {
	return r.end(v, -1, "No last item, sequence was empty.")
}

// end returns the first item of a value, or the last one: that at -1.
func (r *run) end(v Value, at int64, none string) (Value, error) {
	n, err := r.length(v)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return Undefined{name: none}, nil
	}
	if d, ok := v.(*Dict); ok {
		return d.members[(n+int(at))%n].name, nil
	}
	return r.item(v, at)
}

// mostDigits bounds the text of a number, as Python does for integers.
const mostDigits = 4300

// digits returns the text of a number without blanks; "" if it is too long, or none.
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

func filterItems(r *run, v Value, _ *arguments) (Value, error) {
	if _, ok := v.(Undefined); ok {
		return r.list(0)
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, errors.New("Can only get item pairs from a mapping.")
	}
	return r.pairs(d)
}

func filterJoin(r *run, v Value, a *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	between, err := a.text(r.Meter, 0, "d", "")
	if err != nil {
		return nil, err
	}
	name, _ := a.at(1, "attribute")
	return r.join(between, list, r.attribute(name))
}

// attribute returns the function that takes that attribute of a value, or the value itself if
// it is None.
func (m *Meter) attribute(name Value) func(Value) (Value, error) {
	return func(v Value) (Value, error) {
		if name == nil {
			return v, nil
		}
		return m.path(v, name)
	}
}

// join puts the texts of values together.
func (r *run) join(between string, list List, of func(Value) (Value, error)) (Value, error) {
	w := writer{m: r.Meter}
	for i, v := range list {
		if err := r.step(); err != nil {
			return nil, err
		}
		v, err := of(v)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			w.text(between)
		}
		if w.str(v); w.err != nil {
			break
		}
	}
	return w.value()
}

// path returns a member of members: "a.b.0".
func (m *Meter) path(v, name Value) (Value, error) {
	if n, ok := name.(int64); ok {
		return m.item(v, n)
	}
	rest, err := m.str(name)
	for more := true; more && err == nil; {
		if err = m.step(); err != nil {
			break
		}
		var part string
		part, rest, more = strings.Cut(rest, ".")
		if n, ok := place(part); ok {
			v, err = m.item(v, n)
		} else {
			v, err = m.item(v, part)
		}
	}
	return v, err
}

// place reads a short whole number.
func place(s string) (int64, bool) {
	if len(s) > len("-2147483648") || strings.Trim(s, "+-0123456789") != "" {
		return 0, false // without the error of ParseInt, which repeats the text
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return n, err == nil
}

func filterList(r *run, v Value, _ *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	return r.copied(list)
}

func (m *Meter) copied(list List) (List, error) {
	whole, err := m.list(len(list))
	if err != nil {
		return nil, err
	}
	return append(whole, list...), nil // bound: there is room
}

// filterMap applies a filter to each item, or takes an attribute of each.
func filterMap(r *run, v Value, a *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	attribute, _ := a.name("attribute")
	one := func(v Value) (Value, error) {
		got, err := r.path(v, attribute)
		if _, undefined := got.(Undefined); undefined && err == nil {
			if otherwise, ok := a.name("default"); ok {
				return otherwise, nil
			}
		}
		return got, err
	}
	if len(a.list) > 0 {
		name, _ := a.list[0].(string)
		apply := filterNamed(name)
		if apply == nil {
			return nil, fmt.Errorf("No filter named '%s'.", brief(name))
		}
		rest := &arguments{list: a.list[1:], named: a.named}
		one = func(v Value) (Value, error) { return apply(r, v, rest) }
	}
	result, err := r.list(len(list))
	for i := 0; err == nil && i < len(list); i++ {
		var got Value
		if got, err = one(list[i]); err == nil {
			result, err = r.Append(result, got)
		}
	}
	return result, err
}

// chosen makes select, reject and their forms for attributes.
func chosen(byAttribute, keep bool) filter {
	return func(r *run, v Value, a *arguments) (Value, error) {
		list, err := r.items(v)
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
		holds := func(_ *Meter, v Value, _ *arguments) (bool, error) { return truth(v), nil }
		if len(rest) > 0 {
			test, _ := rest[0].(string)
			if holds = tests[test]; holds == nil {
				return nil, fmt.Errorf("No test named '%s'.", brief(test))
			}
			rest = rest[1:]
		}
		of, others := r.attribute(name), &arguments{list: rest}
		result, err := r.list(0)
		for i := 0; err == nil && i < len(list); i++ {
			if err = r.step(); err != nil {
				break
			}
			var v Value
			if v, err = of(list[i]); err != nil {
				break
			}
			var ok bool
			if ok, err = holds(r.Meter, v, others); ok == keep && err == nil {
				result, err = r.Append(result, list[i])
			}
		}
		return result, err
	}
}

func extreme(lowest bool) filter {
	return func(r *run, v Value, a *arguments) (Value, error) {
		list, err := r.items(v)
		if err != nil {
			return nil, err
		}
		name, _ := a.name("attribute")
		of := r.attribute(name)
		best := keyed{v: Undefined{name: "No aggregated item, sequence was empty."}}
		for i, v := range list {
			if err := r.step(); err != nil {
				return nil, err
			}
			one, err := r.keyOf(v, false, of)
			if err != nil {
				return nil, err
			}
			better := i == 0
			switch {
			case better:
			case lowest:
				better, err = r.less(one.key, best.key)
			default:
				better, err = r.less(best.key, one.key)
			}
			if err != nil {
				return nil, err
			}
			if better {
				best = one
			}
		}
		return best.v, nil
	}
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

func filterReverse(r *run, v Value, _ *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	back, err := r.copied(list)
	if err != nil {
		return nil, err
	}
	slices.Reverse(back)
	if _, isText := v.(string); isText {
		return r.joined(back...)
	}
	return back, nil
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

func filterSort(r *run, v Value, a *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	reverse, _ := a.at(0, "reverse")
	cased, _ := a.at(1, "case_sensitive")
	name, _ := a.at(2, "attribute")
	return r.sorted(list, truth(reverse), truth(cased), r.attribute(name))
}

func filterString(r *run, v Value, _ *arguments) (Value, error) { return r.str(v) }

func filterSum(r *run, v Value, a *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	name, _ := a.at(0, "attribute")
	of := r.attribute(name)
	sum, given := a.at(1, "start")
	if !given {
		sum = int64(0)
	}
	for _, v := range list {
		if err := r.step(); err != nil {
			return nil, err
		}
		if v, err = of(v); err != nil {
			return nil, err
		}
		if sum, err = r.calculate("+", sum, v); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

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

func filterUnique(r *run, v Value, a *arguments) (Value, error) {
	list, err := r.items(v)
	if err != nil {
		return nil, err
	}
	name, _ := a.at(1, "attribute")
	of := r.attribute(name)
	var seen, kept List
	for _, v := range list {
		one, err := r.keyOf(v, false, of)
		if err != nil {
			return nil, err
		}
		if at, err := r.index(seen, one.key); err != nil {
			return nil, err
		} else if at >= 0 {
			continue
		}
		if seen, err = r.Append(seen, one.key); err != nil {
			return nil, err
		}
		if kept, err = r.Append(kept, v); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

func filterWordCount(r *run, v Value, _ *arguments) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n, err := r.wordCount(s)
	return int64(n), err
}

// wordCount counts what stands between blanks.
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
