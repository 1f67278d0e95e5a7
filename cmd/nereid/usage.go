package main

import (
	"io"
	"slices"
	"strings"
)

// helpWidth is the width to which --help breaks the text of a flag.
const helpWidth = 72

// writeUsage writes what --help and every mistake show.
func writeUsage(w io.Writer, program string) {
	var b strings.Builder
	b.WriteString("Usage: " + program + " [options]\n")
	for i, g := range flagTable() {
		if i > 0 {
			b.WriteString("\n")
		}
		if g.title != "" {
			b.WriteString(g.title + ":\n")
		}
		for _, f := range g.flags {
			b.WriteString(strings.TrimRight("  --"+f.name+" "+f.value, " ") + "\n")
			help := f.help
			if slices.Contains(noEffect, f.name) {
				help += " Accepted without effect."
			}
			writeWrapped(&b, help)
		}
	}
	b.WriteString("\n")
	_, _ = io.WriteString(w, b.String()) // there is no other place to say so
}

func writeWrapped(b *strings.Builder, text string) {
	line := 0
	for _, word := range strings.Fields(text) {
		switch {
		case line == 0:
			b.WriteString("\t")
		case line+1+len(word) > helpWidth:
			b.WriteString("\n\t")
			line = 0
		default:
			b.WriteString(" ")
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	b.WriteString("\n")
}
