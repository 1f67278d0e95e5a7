package exposition

import (
	"io"
	"strings"
)

// pieceBytes is how much of a page is written at once. A page that is shorter has one Write.
const pieceBytes = 64 << 10

// Page writes families one after another. A family without samples is left out.
type Page struct {
	to  io.Writer
	b   []byte // the piece that has not been written yet
	err error  // of to

	name, help, kind string // of the current family
	headed           bool   // its head is in the page
}

// NewPage returns an empty page that is written to that writer, which must not keep what it is given.
func NewPage(to io.Writer) *Page { return &Page{to: to} }

// Family begins a family: kind is counter, gauge, histogram or summary. A help that is empty is left out.
func (p *Page) Family(name, help, kind string) {
	p.name, p.help, p.kind, p.headed = name, help, kind, false
}

// Sample adds a line to the current family. The suffix follows the family's name. Labels, and last, which
// stands behind them, are as Labels and Last make them; both may be empty.
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

// Failed reports whether the writer has failed: more samples are for nothing.
func (p *Page) Failed() bool { return p.err != nil }

// Flush writes what is left, and returns the first error of the writer.
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
