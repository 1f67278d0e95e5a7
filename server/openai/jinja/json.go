package jinja

import (
	"math"
	"slices"
	"strings"
)

// dumper writes JSON as Python's json.dumps does.
type dumper struct {
	writer
	lines         bool   // each item has a line
	indent        string // of one level
	item, colon   string
	ascii, sorted bool
	depth         int
}

// maxIndent bounds the spaces of a level that templates ask for by number.
const maxIndent = 64

var blanks = strings.Repeat(" ", 1000) // bound: 1000

// filterToJSON is json.dumps, which escapes characters beyond ASCII only if ensure_ascii is true.
func filterToJSON(r *run, v Value, a *arguments) Value {
	d := dumper{writer: writer{m: r.Meter}, item: ", ", colon: ": "}
	d.ascii, d.sorted = a.truth(0, "ensure_ascii"), a.truth(3, "sort_keys")
	switch indent := a.value(1, "indent").(type) {
	case nil:
	case int64:
		d.indent, d.item, d.lines = blanks[:min(max(indent, 0), maxIndent)], ",", true
	case string:
		d.indent, d.item, d.lines = indent, ",", true
	default:
		return r.failf("indent is %s, want an integer or a string", typeName(indent))
	}
	if list, ok := a.value(2, "separators").(List); ok && len(list) == 2 {
		d.item, d.colon = r.str(list[0]), r.str(list[1])
	}
	d.write(v)
	return d.value()
}

func (d *dumper) write(v Value) {
	switch v := v.(type) {
	case nil:
		d.writer.text("null")
	case bool:
		if v {
			d.writer.text("true")
		} else {
			d.writer.text("false")
		}
	case int64:
		d.int(v)
	case float64:
		switch {
		case math.IsNaN(v):
			d.writer.text("NaN")
		case math.IsInf(v, 1):
			d.writer.text("Infinity")
		case math.IsInf(v, -1):
			d.writer.text("-Infinity")
		default:
			d.writer.text(floatText(v))
		}
	case string:
		d.text(v)
	case List:
		d.container('[', ']', len(v), func(i int) { d.write(v[i]) })
	case *Dict:
		d.dict(v)
	default:
		d.m.failf("Object of type %s is not JSON serializable", typeName(v))
	}
}

func (d *dumper) dict(v *Dict) {
	if v.namespace {
		d.m.failf("Object of type Namespace is not JSON serializable")
		return
	}
	members := v.members
	if d.sorted {
		members = made[member](d.m, len(members))
		copy(members, v.members)
		slices.SortFunc(members, func(a, b member) int {
			if !d.m.step() {
				return 0
			}
			return strings.Compare(a.name, b.name)
		})
	}
	d.container('{', '}', len(members), func(i int) {
		d.text(members[i].name)
		d.writer.text(d.colon)
		d.write(members[i].value)
	})
}

func (d *dumper) line() {
	if d.lines {
		d.byte('\n')
		for i := 0; i < d.depth && d.m.err == nil; i++ {
			d.writer.text(d.indent)
		}
	}
}

func (d *dumper) container(open, end byte, n int, part func(i int)) {
	d.depth++
	d.writer.container(open, end, n, func(i int) {
		if i > 0 {
			d.writer.text(d.item)
		}
		d.line()
		part(i)
		if i == n-1 {
			d.depth--
			d.line()
			d.depth++
		}
	})
	d.depth--
}

func (d *dumper) text(s string) {
	d.grow(len(s) + 2)
	d.byte('"')
	for _, c := range s {
		switch {
		case d.m.err != nil:
			return
		case c == '"' || c == '\\':
			d.byte('\\')
			d.rune(c)
		case c == '\n':
			d.writer.text(`\n`)
		case c == '\r':
			d.writer.text(`\r`)
		case c == '\t':
			d.writer.text(`\t`)
		case c == '\b':
			d.writer.text(`\b`)
		case c == '\f':
			d.writer.text(`\f`)
		case c < ' ' || d.ascii && c > '~' && c <= 0xffff:
			d.hex(`\u`, c, 4)
		case d.ascii && c > 0xffff:
			d.hex(`\u`, 0xd800+(c-0x10000)>>10, 4)
			d.hex(`\u`, 0xdc00+(c-0x10000)&0x3ff, 4)
		default:
			d.rune(c)
		}
	}
	d.byte('"')
}
