package exposition

import (
	"io"
	"math"
	"strconv"
	"strings"
)

// pieceBytes is the size of a piece. A shorter page has one Write.
const pieceBytes = 64 << 10

// Page writes families one after another. It omits families without samples.
type Page struct {
	to  io.Writer
	b   []byte // the current piece
	err error  // of to

	name, help, kind string // of the current family
	headed           bool   // its head has been written
}

// NewPage returns a page for a writer, which must not keep the bytes that it gets.
func NewPage(to io.Writer) *Page { return &Page{to: to} }

// Family begins a family of kind counter, gauge, histogram or summary. An empty help is omitted.
func (p *Page) Family(name, help, kind string) {
	p.name, p.help, p.kind, p.headed = name, help, kind, false
}

// Sample adds a line to the current family. The suffix follows the family's name. Labels and last
// are results of Labels and Last, or empty.
//
// bound: pieceBytes and a line
func (p *Page) Sample(suffix, labels, last string, value float64) {
	if p.err != nil {
		return
	}
	b := p.b
	if !p.headed {
		p.headed = true
		b = p.appendHead(b)
	}
	b = append(b, p.name...)
	b = append(b, suffix...)
	if labels != "" || last != "" {
		b = append(b, '{')
		b = append(b, labels...)
		if labels != "" && last != "" {
			b = append(b, ',')
		}
		b = append(b, last...)
		b = append(b, '}')
	}
	b = append(b, ' ')
	b = AppendNumber(b, value)
	p.b = append(b, '\n')
	if len(p.b) >= pieceBytes {
		p.write()
	}
}

// Failed reports whether the writer has failed.
func (p *Page) Failed() bool { return p.err != nil }

// Flush writes the last piece, and returns the first error of the writer.
func (p *Page) Flush() error {
	if p.err == nil && len(p.b) > 0 {
		p.write()
	}
	return p.err
}

func (p *Page) write() {
	_, p.err = p.to.Write(p.b)
	p.b = p.b[:0]
}

var escapeHelp = strings.NewReplacer("\\", `\\`, "\n", `\n`)

// appendHead appends the lines before the samples of a family.
//
// bound: the help of a family
func (p *Page) appendHead(b []byte) []byte {
	if p.help != "" {
		b = append(b, "# HELP "...)
		b = append(b, p.name...)
		b = append(b, ' ')
		b = append(b, escapeHelp.Replace(p.help)...)
		b = append(b, '\n')
	}
	b = append(b, "# TYPE "...)
	b = append(b, p.name...)
	b = append(b, ' ')
	b = append(b, p.kind...)
	return append(b, '\n')
}

var escapeValue = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// Labels formats names and values as between braces.
//
// bound: the pairs, which the callers limit
func Labels(pairs ...[2]string) string {
	var b []byte
	for i, l := range pairs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, l[0]...)
		b = append(b, `="`...)
		b = append(b, escapeValue.Replace(l[1])...)
		b = append(b, '"')
	}
	return string(b)
}

// Last formats the label of a bucket or a quantile, which follows the others.
//
// bound: a number
func Last(name string, value float64) string {
	return string(append(AppendNumber(append([]byte(name), `="`...), value), '"'))
}

// AppendNumber appends a number as Triton does: up to 16 digits, no exponent below 10¹⁶, and one
// more digit where it is needed for the exact value.
func AppendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "Nan"...)
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	}
	// Most numbers are counts and need no conversion below. A zero may be -0.
	if n := int64(v); v > -1e15 && v < 1e15 && float64(n) == v && (n != 0 || !math.Signbit(v)) {
		return strconv.AppendInt(b, n, 10)
	}
	begin := len(b)
	b = strconv.AppendFloat(b, v, 'g', 16, 64)
	if same, err := strconv.ParseFloat(string(b[begin:]), 64); err != nil || same != v { // bound: a number
		b = strconv.AppendFloat(b[:begin], v, 'g', -1, 64)
	}
	return b
}
