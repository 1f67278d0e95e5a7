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
	writer
	lines         bool   // each item has a line
	indent        string // of one level
	item, colon   string
	ascii, sorted bool
	depth         int
}

// maxIndent bounds the blanks of a level that templates ask for by their number.
const maxIndent = 64

var blanks = strings.Repeat(" ", 1000) // bound: 1000

// filterToJSON is json.dumps, with the text as it is unless ensure_ascii is true.
func filterToJSON(r *run, v Value, a *arguments) (Value, error) {
	d := dumper{writer: writer{m: r.Meter}, item: ", ", colon: ": "}
	ascii, _ := a.at(0, "ensure_ascii")
	sorted, _ := a.at(3, "sort_keys")
	d.ascii, d.sorted = truth(ascii), truth(sorted)
	switch indent, _ := a.at(1, "indent"); indent := indent.(type) {
	case nil:
	case int64:
		d.indent, d.item, d.lines = blanks[:min(max(indent, 0), maxIndent)], ",", true
	case string:
		d.indent, d.item, d.lines = indent, ",", true
	default:
		return nil, fmt.Errorf("indent is %s, want an integer or a string", typeName(indent))
	}
	separators, _ := a.at(2, "separators")
	if list, ok := separators.(List); ok && len(list) == 2 {
		var err error
		if d.item, err = r.str(list[0]); err != nil {
			return nil, err
		}
		if d.colon, err = r.str(list[1]); err != nil {
			return nil, err
		}
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
		d.fail(fmt.Errorf("Object of type %s is not JSON serializable", typeName(v)))
	}
}

func (d *dumper) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *dumper) dict(v *Dict) {
	if v.namespace {
		d.fail(errors.New("Object of type Namespace is not JSON serializable"))
		return
	}
	members := v.members
	if d.sorted {
		sorted, err := made[member](d.m, len(members))
		if err != nil {
			d.fail(err)
			return
		}
		copy(sorted, members)
		slices.SortFunc(sorted, func(a, b member) int {
			if err := d.m.step(); err != nil {
				d.fail(err)
			}
			if d.err != nil {
				return 0
			}
			return strings.Compare(a.name, b.name)
		})
		members = sorted
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
		for i := 0; i < d.depth && d.err == nil; i++ {
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
		case d.err != nil:
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
