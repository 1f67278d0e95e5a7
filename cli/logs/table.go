package logs

import (
	"strings"

	"github.com/nereid-serving/nereid/cli/command"
)

// RenderTable draws a table in the style of Triton's start-up output:
//
//	+-------+---------+--------+
//	| Model | Version | Status |
//	+-------+---------+--------+
//	| m     | 1       | READY  |
//	+-------+---------+--------+
//
// Widths count bytes. A cell with line breaks takes several lines; a line break at its end does not
// count. Text from models is possible in cells, so all are escaped for a terminal.
func RenderTable(headers []string, rows [][]string) string {
	lines := make([][][]string, 0, len(rows)+1) // by row and cell
	widths := make([]int, len(headers))
	for _, row := range append([][]string{headers}, rows...) {
		cells := make([][]string, len(headers))
		for i := range cells {
			cells[i] = strings.Split(string(command.AppendPrintable(nil, []byte(strings.TrimSuffix(row[i], "\n")))), "\n")
			for _, line := range cells[i] {
				widths[i] = max(widths[i], len(line))
			}
		}
		lines = append(lines, cells)
	}

	var b strings.Builder
	writeRule(&b, widths)
	for i, cells := range lines {
		writeRow(&b, widths, cells)
		if i == 0 {
			writeRule(&b, widths)
		}
	}
	writeRule(&b, widths)
	return b.String()
}

func writeRule(b *strings.Builder, widths []int) {
	for _, width := range widths {
		b.WriteString("+" + strings.Repeat("-", width+2))
	}
	b.WriteString("+\n")
}

func writeRow(b *strings.Builder, widths []int, cells [][]string) {
	height := 0
	for _, lines := range cells {
		height = max(height, len(lines))
	}
	for n := range height {
		for i, lines := range cells {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}
			b.WriteString("| " + text + strings.Repeat(" ", widths[i]-len(text)+1))
		}
		b.WriteString("|\n")
	}
}
