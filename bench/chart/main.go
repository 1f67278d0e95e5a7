// Command chart draws docs/images/triton-light.svg and docs/images/triton-dark.svg, the bar chart
// of the README, from triton.csv:
//
//	go run ./bench/chart docs/images
package main

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// figures are requests per second, as in docs/performance.md.
//
//go:embed triton.csv
var figures string

// bar compares both servers in one measurement.
type bar struct {
	label string
	ratio float64 // Nereid's rate divided by Triton's
}

// theme has the colours of one chart.
type theme struct {
	name, text, faint, nereid, triton string
}

var themes = []theme{
	{name: "light", text: "#1f2328", faint: "#59636e", nereid: "#0f766e", triton: "#afb8c1"},
	{name: "dark", text: "#f0f6fc", faint: "#9198a1", nereid: "#2dd4bf", triton: "#59636e"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// write writes the chart in each theme.
func write(directory string) error {
	bars, err := read(figures)
	if err != nil {
		return err
	}
	for _, t := range themes {
		path := filepath.Join(directory, "triton-"+t.name+".svg")
		if err := os.WriteFile(path, []byte(draw(bars, t)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// read returns the bars of a table with a header: measurement, Triton's rate, Nereid's rate.
func read(table string) ([]bar, error) {
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	var bars []bar
	for _, row := range rows[1:] {
		triton, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			return nil, fmt.Errorf("read figures of %q: %w", row[0], err)
		}
		nereid, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			return nil, fmt.Errorf("read figures of %q: %w", row[0], err)
		}
		bars = append(bars, bar{label: row[0], ratio: nereid / triton})
	}
	return bars, nil
}

// Sizes of the chart in pixels.
const (
	width, labelWidth   = 760, 230
	rowHeight, barWidth = 30, 56 // barWidth is the width of Triton's bar, whose rate is 1
	top, bottom         = 58, 34
)

// draw returns the chart as SVG.
func draw(bars []bar, t theme) string {
	height := top + len(bars)*rowHeight + bottom
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" `, width, height, width, height)
	fmt.Fprintf(&b, `aria-label="Requests per second of Nereid relative to Triton" font-family="system-ui, sans-serif" font-size="13">`+"\n")
	fmt.Fprintf(&b, `<text x="0" y="18" fill="%s" font-size="15" font-weight="600">Requests per second, relative to Triton 2.51</text>`+"\n", t.text)
	legend(&b, labelWidth, "Triton", t.triton, t)
	legend(&b, labelWidth+80, "Nereid", t.nereid, t)
	for i, bar := range bars {
		y := top + i*rowHeight
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" text-anchor="end">%s</text>`+"\n", labelWidth-12, y+17, t.text, bar.label)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="9" rx="2" fill="%s"/>`+"\n", labelWidth, y+2, barWidth, t.triton)
		length := bar.ratio * barWidth
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="11" rx="2" fill="%s"/>`+"\n", labelWidth, y+12, length, t.nereid)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="%s">%.1f×</text>`+"\n", labelWidth+length+6, y+22, t.text, bar.ratio)
	}
	fmt.Fprintf(&b, `<text x="0" y="%d" fill="%s" font-size="12">One machine with two cores, shared with the clients; small models in Python. Details: docs/performance.md</text>`+"\n", height-8, t.faint)
	b.WriteString("</svg>\n")
	return b.String()
}

// legend draws the name of a server beside its colour.
func legend(b *strings.Builder, x int, name, colour string, t theme) {
	fmt.Fprintf(b, `<rect x="%d" y="32" width="12" height="12" rx="2" fill="%s"/>`+"\n", x, colour)
	fmt.Fprintf(b, `<text x="%d" y="43" fill="%s">%s</text>`+"\n", x+18, t.text, name)
}
