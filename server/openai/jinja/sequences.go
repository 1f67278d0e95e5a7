package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

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

// keyed is an element with its sort key.
type keyed struct{ key, v Value }

// keyOf returns an element with its key. Unless cased, the key of a text is in lower case.
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

func filterFirst(r *run, v Value, _ *arguments) (Value, error) {
	return r.end(v, 0, "No first item, sequence was empty.")
}

func filterLast(r *run, v Value, _ *arguments) (Value, error) {
	return r.end(v, -1, "No last item, sequence was empty.")
}

// end returns the first item of a value, at 0, or the last one, at -1.
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

// attribute returns a function that returns that attribute of a value. Without a name it
// returns the value.
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
