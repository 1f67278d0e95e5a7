package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// dumper writes JSON as Python's json.dumps does.
type dumper struct {
	b             strings.Builder
	lines         bool   // each item has a line
	indent        string // of one level
	item, colon   string
	ascii, sorted bool
}

// filterToJSON is json.dumps, with the text as it is unless ensure_ascii is true.
func filterToJSON(r *run, v Value, a *arguments) (Value, error) {
	d := dumper{item: ", ", colon: ": "}
	ascii, _ := a.at(0, "ensure_ascii")
	sorted, _ := a.at(3, "sort_keys")
	d.ascii, d.sorted = truth(ascii), truth(sorted)
	switch indent, _ := a.at(1, "indent"); indent := indent.(type) {
	case nil:
	case int64:
		d.indent, d.item, d.lines = strings.Repeat(" ", int(min(max(indent, 0), 64))), ",", true
	case string:
		d.indent, d.item, d.lines = indent, ",", true
	default:
		return nil, fmt.Errorf("indent is %s, want an integer or a string", typeName(indent))
	}
	separators, _ := a.at(2, "separators")
	if list, ok := separators.(List); ok && len(list) == 2 {
		d.item, d.colon = str(list[0]), str(list[1])
	}
	if err := d.write(v, 0); err != nil {
		return nil, err
	}
	return r.made(d.b.String())
}

func (d *dumper) write(v Value, depth int) error {
	switch v := v.(type) {
	case nil:
		d.b.WriteString("null")
	case bool:
		fmt.Fprint(&d.b, v)
	case int64:
		fmt.Fprint(&d.b, v)
	case float64:
		switch {
		case math.IsNaN(v):
			d.b.WriteString("NaN")
		case math.IsInf(v, 0):
			d.b.WriteString(strings.Replace(floatText(v), "inf", "Infinity", 1))
		default:
			d.b.WriteString(floatText(v))
		}
	case string:
		d.text(v)
	case List:
		return d.container('[', ']', len(v), depth, func(i int) error { return d.write(v[i], depth+1) })
	case *Dict:
		if v.namespace {
			return errors.New("Object of type Namespace is not JSON serializable")
		}
		names := v.names
		if d.sorted {
			names = slices.Sorted(slices.Values(names))
		}
		return d.container('{', '}', len(names), depth, func(i int) error {
			d.text(names[i])
			d.b.WriteString(d.colon)
			return d.write(v.values[names[i]], depth+1)
		})
	default:
		return fmt.Errorf("Object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func (d *dumper) container(open, end byte, n, depth int, write func(i int) error) error {
	line := func(depth int) {
		if d.lines {
			d.b.WriteByte('\n')
			for range depth {
				d.b.WriteString(d.indent)
			}
		}
	}
	d.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			d.b.WriteString(d.item)
		}
		line(depth + 1)
		if err := write(i); err != nil {
			return err
		}
	}
	if n > 0 {
		line(depth)
	}
	d.b.WriteByte(end)
	return nil
}

func (d *dumper) text(s string) {
	b := &d.b
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c < ' ' || d.ascii && c > '~' && c <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, c)
		case d.ascii && c > 0xffff:
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
}
