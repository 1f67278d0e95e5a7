package measure

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Table is printed in columns, with numbers aligned right.
type Table struct {
	rows [][]string
}

// Row adds a row. Durations are shown in µs, floats with three digits.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		switch v := cell.(type) {
		case time.Duration:
			row[i] = digits(float64(v.Nanoseconds()) / 1000)
		case float64:
			row[i] = digits(v)
		default:
			row[i] = fmt.Sprint(v)
		}
	}
	t.rows = append(t.rows, row)
}

// digits formats a number with three digits, or more if there are more before the point.
func digits(v float64) string {
	for digits, below := range []float64{10, 100} {
		if v < below {
			return strconv.FormatFloat(v, 'f', 2-digits, 64)
		}
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Write prints the table. The first column is text.
func (t *Table) Write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0 && len(row) > 1:
				b.WriteString(cell + space)
			case i == 0:
				b.WriteString(cell)
			default:
				b.WriteString("  " + space + cell)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Size formats a number of bytes.
func Size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

// WriteMarkdown prints the table as Markdown; its first row is the header.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	for i, row := range t.rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
