package jinja

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func filterDictSort(r *run, v Value, a *arguments) Value {
	d, ok := v.(*Dict)
	if !ok {
		return r.failf("dictsort wants a dict, not %s", typeName(v))
	}
	part := 0
	if a.text(1, "by", "key") == "value" {
		part = 1
	}
	return r.sorted(r.pairs(d), a.truth(2, "reverse"), a.truth(0, "case_sensitive"), func(v Value) Value { return v.(List)[part] })
}

// pairs returns a list of name and value for each member of a dict.
func (m *Meter) pairs(d *Dict) List {
	return m.build(len(d.members), func(i int) Value {
		pair := m.list(2)
		if pair == nil {
			return nil
		}
		return append(pair, d.members[i].name, d.members[i].value) // bound: there is room
	})
}

// keyed is an element with its sort key.
type keyed struct{ key, v Value }

// keyOf returns an element with its key. Unless cased, a text's key is in lower case.
func (m *Meter) keyOf(v Value, cased bool, key func(Value) Value) keyed {
	k := key(v)
	if s, ok := k.(string); ok && !cased {
		k = m.mapped(s, unicode.ToLower)
	}
	return keyed{k, v}
}

// sorted sorts by a key.
func (m *Meter) sorted(list List, reverse, cased bool, key func(Value) Value) Value {
	all := made[keyed](m, len(list))
	for i, v := range m.each(list) {
		all[i] = m.keyOf(v, cased, key)
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		switch {
		case m.step() && m.less(a.key, b.key):
			return -1
		case m.step() && m.less(b.key, a.key):
			return 1
		}
		return 0
	})
	return m.build(len(all), func(i int) Value { return all[i].v })
}

func filterFirst(r *run, v Value, _ *arguments) Value {
	return r.end(v, 0, "No first item, sequence was empty.")
}

func filterLast(r *run, v Value, _ *arguments) Value {
	return r.end(v, -1, "No last item, sequence was empty.")
}

// end returns the first item of a value, at 0, or the last one, at -1.
func (m *Meter) end(v Value, at int64, none string) Value {
	n := m.length(v)
	if n == 0 {
		return Undefined{name: none}
	}
	if d, ok := v.(*Dict); ok {
		return d.members[(n+int(at))%n].name
	}
	return m.item(v, at)
}

func filterItems(r *run, v Value, _ *arguments) Value {
	if _, ok := v.(Undefined); ok {
		return r.list(0)
	}
	d, ok := v.(*Dict)
	if !ok {
		return r.failf("Can only get item pairs from a mapping.")
	}
	return r.pairs(d)
}

func filterJoin(r *run, v Value, a *arguments) Value {
	return r.join(a.text(0, "d", ""), r.items(v), r.attribute(a.value(1, "attribute")))
}

// attribute returns a function that returns that attribute of a value. Without a name the function
// returns the value.
func (m *Meter) attribute(name Value) func(Value) Value {
	return func(v Value) Value {
		if name == nil {
			return v
		}
		return m.path(v, name)
	}
}

// join concatenates the texts of values.
func (m *Meter) join(between string, list List, of func(Value) Value) Value {
	w := writer{m: m}
	for i, v := range m.each(list) {
		m.step()
		v = of(v)
		if i > 0 {
			w.text(between)
		}
		w.str(v)
	}
	return w.value()
}

// path returns a member of members: "a.b.0".
func (m *Meter) path(v, name Value) Value {
	if n, ok := name.(int64); ok {
		return m.item(v, n)
	}
	rest := m.str(name)
	for more := true; more && m.step(); {
		var part string
		part, rest, more = strings.Cut(rest, ".")
		if n, ok := parseIndex(part); ok {
			v = m.item(v, n)
		} else {
			v = m.item(v, part)
		}
	}
	return v
}

// parseIndex reads a short whole number.
func parseIndex(s string) (int64, bool) {
	if len(s) > len("-2147483648") || strings.Trim(s, "+-0123456789") != "" {
		return 0, false // without the error of ParseInt, which repeats the text
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return n, err == nil
}

func filterList(r *run, v Value, _ *arguments) Value { return r.copied(r.items(v)) }

func (m *Meter) copied(list List) List {
	whole := m.list(len(list))
	if whole == nil {
		return nil
	}
	return append(whole, list...) // bound: there is room
}

// filterMap applies a filter to each item, or returns an attribute of each.
func filterMap(r *run, v Value, a *arguments) Value {
	list := r.items(v)
	if len(a.list) == 0 {
		attribute, _ := a.name("attribute")
		return r.build(len(list), func(i int) Value {
			got := r.path(list[i], attribute)
			if _, undefined := got.(Undefined); undefined {
				if otherwise, ok := a.name("default"); ok {
					return otherwise
				}
			}
			return got
		})
	}
	name, _ := a.list[0].(string)
	apply := filterNamed(name)
	if apply == nil {
		return r.failf("No filter named '%s'.", brief(name))
	}
	rest := &arguments{a.m, a.list[1:], a.named}
	return r.build(len(list), func(i int) Value { return apply(r, list[i], rest) })
}

// chosen returns select, reject or one of their forms for attributes.
func chosen(byAttribute, keep bool) filter {
	return func(r *run, v Value, a *arguments) Value {
		list, rest := r.items(v), a.list
		var name Value
		if byAttribute {
			if len(rest) == 0 {
				return r.failf("Missing parameter for attribute name")
			}
			name, rest = rest[0], rest[1:]
		}
		holds := func(v Value, _ *arguments) bool { return truth(v) }
		if len(rest) > 0 {
			test, _ := rest[0].(string)
			if holds = tests[test]; holds == nil {
				return r.failf("No test named '%s'.", brief(test))
			}
			rest = rest[1:]
		}
		of, others := r.attribute(name), &arguments{m: a.m, list: rest}
		result := r.list(0)
		for _, v := range r.each(list) {
			r.step()
			if holds(of(v), others) == keep {
				result = r.Append(result, v)
			}
		}
		return result
	}
}

func extreme(lowest bool) filter {
	return func(r *run, v Value, a *arguments) Value {
		name, _ := a.name("attribute")
		of := r.attribute(name)
		best := keyed{v: Undefined{name: "No aggregated item, sequence was empty."}}
		for i, v := range r.each(r.items(v)) {
			r.step()
			one := r.keyOf(v, false, of)
			switch {
			case i == 0, lowest && r.less(one.key, best.key), !lowest && r.less(best.key, one.key):
				best = one
			}
		}
		return best.v
	}
}

func filterReverse(r *run, v Value, _ *arguments) Value {
	back := r.copied(r.items(v))
	slices.Reverse(back)
	if _, isText := v.(string); isText {
		return r.joined(back...)
	}
	return back
}

func filterSort(r *run, v Value, a *arguments) Value {
	return r.sorted(r.items(v), a.truth(0, "reverse"), a.truth(1, "case_sensitive"), r.attribute(a.value(2, "attribute")))
}

func filterSum(r *run, v Value, a *arguments) Value {
	list, of := r.items(v), r.attribute(a.value(0, "attribute"))
	sum, given := a.at(1, "start")
	if !given {
		sum = int64(0)
	}
	for _, v := range r.each(list) {
		r.step()
		sum = r.calculate("+", sum, of(v))
	}
	return sum
}

func filterUnique(r *run, v Value, a *arguments) Value {
	of := r.attribute(a.value(1, "attribute"))
	var seen, kept List
	for _, v := range r.each(r.items(v)) {
		one := r.keyOf(v, false, of)
		if r.index(seen, one.key) < 0 {
			seen = r.Append(seen, one.key)
			kept = r.Append(kept, v)
		}
	}
	return kept
}
