package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/nereid-serving/nereid/server/status"
)

// column is one column of the table of models.
type column struct {
	name  string // for --sort
	title string
	right bool // aligned right
	// rank is the order in which columns disappear on a narrow terminal, highest first; 0: never.
	rank int
	text func(r *Row, u *ui) string
	// value is the sort key, largest first; nil: sort by text.
	value func(r *Row, u *ui) *float64
}

func columns() []column {
	numeric := func(name, title string, rank int, value func(r *Row, u *ui) *float64, show func(float64) string) column {
		return column{name, title, true, rank, func(r *Row, u *ui) string { return orDash(value(r, u), show) }, value}
	}
	percentile := func(pick func(*status.Percentiles) float64) func(r *Row, u *ui) *float64 {
		return func(r *Row, u *ui) *float64 {
			if p := r.percentiles(u.period); p != nil {
				return number(pick(p))
			}
			return nil
		}
	}
	return []column{
		{"model", "MODEL", false, 0, func(r *Row, _ *ui) string { return clean(r.Model) }, nil},
		{"version", "VER", true, 3, func(r *Row, _ *ui) string { return clean(r.Version) }, func(r *Row, _ *ui) *float64 { return number(float64(versionNumber(r.Version))) }},
		{"state", "STATE", false, 1, func(r *Row, _ *ui) string { return cmp.Or(clean(r.State), "-") }, nil},
		{"instances", "INST", true, 7, func(r *Row, _ *ui) string {
			if r.Total == nil {
				return "-"
			}
			if r.Ready == nil {
				return count(*r.Total)
			}
			return count(*r.Ready) + "/" + count(*r.Total)
		}, func(r *Row, _ *ui) *float64 { return r.Total }},
		numeric("queue", "QUEUE", 4, func(r *Row, _ *ui) *float64 { return r.Queue }, count),
		numeric("flight", "FLIGHT", 9, func(r *Row, _ *ui) *float64 { return r.InFlight }, count),
		numeric("rate", "REQ/S", 2, func(r *Row, _ *ui) *float64 { return r.Rate }, amount),
		numeric("errors", "ERR/S", 6, func(r *Row, _ *ui) *float64 { return r.Errors }, amount),
		numeric("batch", "BATCH", 12, func(r *Row, _ *ui) *float64 { return r.Batch }, func(n float64) string { return fmt.Sprintf("%.1f", n) }),
		numeric("mean", "MEAN", 11, func(r *Row, _ *ui) *float64 { return r.Mean }, duration),
		numeric("p50", "P50", 8, percentile(func(p *status.Percentiles) float64 { return p.P50 }), duration),
		numeric("p90", "P90", 13, percentile(func(p *status.Percentiles) float64 { return p.P90 }), duration),
		numeric("p99", "P99", 5, percentile(func(p *status.Percentiles) float64 { return p.P99 }), duration),
		numeric("memory", "MEM", 10, func(r *Row, _ *ui) *float64 { return r.Resident }, size),
		numeric("lost", "LOST", 14, func(r *Row, _ *ui) *float64 { return r.Losses }, count),
	}
}

func columnNames() (names []string) {
	for _, c := range columns() {
		names = append(names, c.name)
	}
	return names
}

// columnOf returns the index of a column, or a negative number for an unknown name.
func columnOf(name string) int { return slices.Index(columnNames(), name) }

// percentiles returns the percentiles of a window, or the only ones that there are.
func (r *Row) percentiles(period int) *status.Percentiles {
	if len(r.Percentiles) == 0 {
		return nil
	}
	return r.Percentiles[min(period, len(r.Percentiles)-1)]
}

// rows returns the selected rows in the user's order.
func (u *ui) rows(v *View) []*Row {
	var list []*Row
	for i := range v.Models {
		if strings.Contains(strings.ToLower(v.Models[i].Model), strings.ToLower(u.filter)) {
			list = append(list, &v.Models[i])
		}
	}
	by := columns()[u.sort]
	slices.SortStableFunc(list, func(a, b *Row) int {
		order := 0
		if by.value == nil {
			order = strings.Compare(by.text(a, u), by.text(b, u))
		} else {
			x, y := by.value(a, u), by.value(b, u)
			switch {
			case x == nil && y == nil:
				return 0
			case x == nil: // unknown values sort last in either order
				return 1
			case y == nil:
				return -1
			}
			order = cmp.Compare(*y, *x)
		}
		if u.reverse {
			return -order
		}
		return order
	})
	return list
}

// stateStyle returns the style of a version's or an instance's state.
func stateStyle(state string) style {
	switch state {
	case "READY", "ready":
		return good
	case "busy":
		return strong
	case "UNAVAILABLE", "dead", "backing off":
		return bad
	case "LOADING", "UNLOADING", "starting", "restarting", "stopping":
		return busy
	}
	return faint
}

// modelTable returns the table of models, header first, cut to width columns; 0: uncut.
func modelTable(rows []*Row, u *ui, width int) []line {
	all := columns()
	widths := make([]int, len(all))
	for i, c := range all {
		widths[i] = uniseg.StringWidth(c.title)
		for _, r := range rows {
			widths[i] = max(widths[i], uniseg.StringWidth(c.text(r, u)))
		}
	}
	const gap, leastName = 2, 8
	shown := make([]int, 0, len(all))
	for i := range all {
		shown = append(shown, i)
	}
	whole := func() (sum int) {
		for _, i := range shown {
			sum += widths[i] + gap
		}
		return sum - gap
	}
	for width > 0 && whole() > width {
		if over := whole() - width; widths[0]-over >= min(leastName, widths[0]) && widths[0] > 24 {
			widths[0] = max(widths[0]-over, 24) // long names first
			continue
		}
		last := slices.MaxFunc(shown, func(a, b int) int { return cmp.Compare(all[a].rank, all[b].rank) })
		if last == 0 {
			widths[0] = width
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == last })
	}
	head := line{}
	for n, i := range shown {
		title, mark := all[i].title, heading
		if i == u.sort {
			mark = selected
		}
		if n > 0 {
			head = append(head, span{"  ", heading})
		}
		head = append(head, span{fit(title, widths[i], all[i].right), mark})
	}
	lines := []line{head}
	for _, r := range rows {
		l := line{}
		for n, i := range shown {
			if n > 0 {
				l = append(l, span{"  ", plainText})
			}
			s := plainText
			switch all[i].name {
			case "state":
				s = stateStyle(r.State)
			case "errors":
				if r.Errors != nil && *r.Errors > 0 {
					s = bad
				}
			case "lost":
				if r.Losses != nil && *r.Losses > 0 {
					s = busy
				}
			}
			l = append(l, span{fit(all[i].text(r, u), widths[i], all[i].right), s})
		}
		lines = append(lines, l)
	}
	return lines
}

// simpleTable aligns cells below titles. A title that begins with a space makes its column aligned
// right.
func simpleTable(titles []string, rows [][]span) []line {
	widths := make([]int, len(titles))
	for i, title := range titles {
		widths[i] = uniseg.StringWidth(strings.TrimSpace(title))
		for _, row := range rows {
			widths[i] = max(widths[i], uniseg.StringWidth(row[i].text))
		}
	}
	head := line{}
	for i, title := range titles {
		head = append(head, span{fit(strings.TrimSpace(title), widths[i], strings.HasPrefix(title, " ")) + "  ", heading})
	}
	lines := []line{head}
	for _, row := range rows {
		l := line{}
		for i, cell := range row {
			l = append(l, span{fit(cell.text, widths[i], strings.HasPrefix(titles[i], " ")) + "  ", cell.style})
		}
		lines = append(lines, l)
	}
	return lines
}
