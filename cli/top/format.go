package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/nereid-serving/nereid/cli/command"
)

// style selects the colour of a text.
type style uint8

const (
	plainText style = iota
	strong
	faint
	good
	busy
	bad
	heading
	selected // over a whole line
)

// span is a text of one style, line one line of the view.
type (
	span struct {
		text  string
		style style
	}
	line []span
)

func textLine(text string, s style) line { return line{{text, s}} }

// String returns the line without styles.
func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return strings.TrimRight(b.String(), " ")
}

// clean converts text from a server, its models and its clients to one printable line, before it is
// measured.
func clean(text string) string { return command.Line(text) }

// fit cuts a text to a width, or pads it with spaces, on the left if right is set.
func fit(text string, width int, right bool) string {
	w := uniseg.StringWidth(text)
	switch {
	case w > width && width > 0:
		return cut(text, width-1) + "…"
	case w > width:
		return ""
	case right:
		return strings.Repeat(" ", width-w) + text
	}
	return text + strings.Repeat(" ", width-w)
}

// cut returns the beginning of a text, at most width columns wide. A wide character across the end
// becomes a space.
func cut(text string, width int) string {
	taken, w, state := "", 0, -1
	for rest := text; rest != ""; {
		cluster, more, wide, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if w+wide > width {
			break
		}
		taken, w, rest, state = taken+cluster, w+wide, more, next
	}
	return taken + strings.Repeat(" ", width-w)
}

// duration formats a duration for a column.
func duration(seconds float64) string {
	switch ms := seconds * 1000; {
	case ms < 1:
		return fmt.Sprintf("%.0fµs", ms*1000)
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0fms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.1fs", ms/1000)
	}
	return fmt.Sprintf("%.0fs", seconds)
}

// size formats a number of bytes.
func size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	at := 0
	for bytes >= 1000 && at < len(units)-1 {
		bytes /= 1024
		at++
	}
	if at > 0 && bytes < 9.95 {
		return fmt.Sprintf("%.1f %s", bytes, units[at])
	}
	return fmt.Sprintf("%.0f %s", bytes, units[at])
}

// amount formats a rate or a mean of counts.
func amount(n float64) string {
	if n == math.Trunc(n) || n >= 9.95 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

func count(n float64) string { return fmt.Sprintf("%.0f", n) }

// ago formats an elapsed time.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
}

// orDash formats a value, or returns a dash if it is unknown.
func orDash(value *float64, show func(float64) string) string {
	if value == nil {
		return "-"
	}
	return show(*value)
}
