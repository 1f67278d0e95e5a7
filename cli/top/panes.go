package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/server/status"
)

// pane selects the lower part of the view.
type pane uint8

const (
	paneInstances pane = iota
	paneErrors
	paneLog
	paneDetails
)

var paneTitles = [...]string{"instances", "errors", "log", "details"}

// ui holds the user's choices.
type ui struct {
	sort    int // a column
	reverse bool
	filter  string
	period  int // of percentiles: 1, 5 or 15 minutes

	chosen key // the selected row
	pane   pane
	below  bool // the lower pane has the focus
	// scroll is the number of skipped lines in the lower pane, from its beginning or, for errors
	// and log, from its end.
	scroll int
	top    int // the first visible row of the table
	paused bool
	help   bool

	message string // about the last action
	wrong   bool   // it failed
	ask     *question
}

var periodNames = [...]string{"1 min", "5 min", "15 min"}

// head returns the lines above the table.
func head(v *View, u *ui) []line {
	s := &v.Server
	first := fmt.Sprintf("%s %s at %s", cmp.Or(clean(s.Name), "server"), clean(s.Version), strings.TrimPrefix(v.URL, "http://"))
	if s.Uptime != nil {
		first += ", up " + ago(time.Duration(*s.Uptime*float64(time.Second)))
	}
	if s.PID > 0 {
		first += fmt.Sprintf(", pid %d, control %s", s.PID, s.Control)
	}
	l := line{{first, strong}}
	add := func(name string, value *float64, show func(float64) string) {
		if value != nil {
			l = append(l, span{"  " + name + " ", faint}, span{show(*value), plainText})
		}
	}
	add("CPU", s.CPU, func(n float64) string { return fmt.Sprintf("%.1f", n) })
	add("memory", s.Resident, size)
	if s.MemoryLimit != nil && s.MemoryUsed != nil {
		l = append(l, span{"  requests ", faint}, span{size(*s.MemoryUsed) + " of " + size(*s.MemoryLimit), plainText})
	}
	add("machine", s.MachineCPU, func(n float64) string { return fmt.Sprintf("%.0f%%", 100*n) })
	lines := []line{l}
	for i, g := range s.GPUs {
		lines = append(lines, line{{fmt.Sprintf("GPU %d ", i), faint}, {fmt.Sprintf("%.0f%%, %s of %s  ", 100*g.Utilization, size(g.MemoryUsed), size(g.MemoryTotal)), plainText}, {clean(g.UUID), faint}})
	}
	ready, instances := 0, 0
	for i := range v.Models {
		if v.Models[i].State == "READY" {
			ready++
		}
		instances += len(v.Models[i].Instances)
	}
	summary := fmt.Sprintf("models %d, ready %d, instances %d; ", len(v.Models), ready, instances)
	if v.hasStatus {
		summary += "percentiles of the last " + periodNames[u.period]
	} else if v.timed {
		summary += "percentiles since the start of nereid top"
	} else {
		summary += "no percentiles"
	}
	if u.filter != "" {
		summary += fmt.Sprintf("; filter %q", clean(u.filter))
	}
	if u.paused {
		summary += "; paused"
	}
	lines = append(lines, textLine(summary, faint))
	if v.Lost != "" {
		lines = append(lines, textLine(fmt.Sprintf("lost the server %s ago: %s; retrying", ago(time.Since(v.since)), clean(v.Lost)), bad))
	}
	for _, note := range v.Notes {
		lines = append(lines, textLine(clean(note), busy))
	}
	return lines
}

// lower returns the lower pane: its title, its fixed lines, and the scrolling lines.
func lower(v *View, u *ui, r *Row) (title string, fixed, lines []line) {
	title = paneTitles[u.pane]
	if r != nil && (u.pane == paneInstances || u.pane == paneDetails) {
		title += " of " + clean(r.Model)
		if r.Version != "" {
			title += " version " + r.Version
		}
	}
	switch {
	case u.pane == paneErrors:
		return title, nil, logLines(v.Errors, v.hasStatus)
	case u.pane == paneLog:
		return title, nil, logLines(v.Log, v.hasStatus)
	case r == nil:
		return title, nil, []line{textLine("no model is selected", faint)}
	case u.pane == paneDetails:
		return title, nil, details(r)
	}
	if len(r.Instances) == 0 {
		return title, nil, []line{textLine("none are known", faint)}
	}
	table := instanceTable(r, v.At)
	return title, table[:1], table[1:]
}

// instanceTable returns a table of the instances of a version.
func instanceTable(r *Row, now time.Time) []line {
	var rows [][]span
	for i := range r.Instances {
		in := &r.Instances[i]
		device := in.Kind
		if in.Kind == "GPU" {
			device = "GPU " + strconv.Itoa(int(in.Device))
		}
		pid, resident := "-", "-"
		if in.PID > 0 {
			pid = strconv.Itoa(in.PID)
		}
		if in.Resident > 0 {
			resident = size(float64(in.Resident))
		}
		state, since := cmp.Or(clean(in.State), "-"), "-"
		if in.Since != nil {
			since = ago(now.Sub(*in.Since))
		}
		if in.NextStart != nil && in.NextStart.After(now) {
			state += " for " + ago(in.NextStart.Sub(now))
		}
		loss := ""
		if l := in.LastLoss; l != nil {
			loss = fmt.Sprintf("%s, %s ago: %s", l.Cause, ago(now.Sub(l.At)), clean(l.Text))
		}
		rows = append(rows, []span{
			{clean(in.Name), plainText}, {state, stateStyle(in.State)}, {since, plainText}, {device, plainText}, {pid, plainText}, {resident, plainText},
			{orDash(in.CPUCores, func(n float64) string { return fmt.Sprintf("%.2f", n) }), plainText}, {strconv.Itoa(in.Restarts), plainText}, {loss, bad},
		})
	}
	return simpleTable([]string{"INSTANCE", "STATE", " SINCE", "DEVICE", " PID", " MEM", " CPU", " RESTARTS", "LAST LOSS"}, rows)
}

// levelStyle returns the style of a log level.
func levelStyle(level string) style {
	switch level {
	case "error", "fatal":
		return bad
	case "warn":
		return busy
	case "debug":
		return faint
	}
	return plainText
}

// logLines returns the lines of the log; each line of a traceback is separate.
func logLines(list []status.Line, known bool) (lines []line) {
	if len(list) == 0 {
		if known {
			return []line{textLine("none", faint)}
		}
		return []line{textLine("unknown without the status", faint)}
	}
	for _, l := range list {
		text := strings.Split(strings.TrimRight(l.Text, "\n"), "\n")
		s := levelStyle(l.Level)
		lines = append(lines, line{{l.Time.Local().Format("15:04:05 "), faint}, {fmt.Sprintf("%-5s ", clean(l.Level)), s}, {clean(text[0]), s}, {"  " + clean(l.Source), faint}})
		for _, more := range text[1:] {
			lines = append(lines, line{{"               ", faint}, {indented(more), s}})
		}
	}
	return lines
}

// indented cleans a line and keeps its indentation.
func indented(text string) string { return clean(strings.ReplaceAll(text, "\t", "    ")) }

// details returns everything that is known about a version.
func details(r *Row) (lines []line) {
	say := func(name, text string) {
		if text != "" {
			lines = append(lines, line{{fmt.Sprintf("%-12s", name), faint}, {text, plainText}})
		}
	}
	say("state", cmp.Or(clean(r.State), "not loaded"))
	say("backend", clean(r.Backend))
	if r.Load != nil {
		say("loaded in", duration(*r.Load))
	}
	for _, g := range r.Groups {
		say("group", fmt.Sprintf("%s: %d on %s", clean(g.Name), g.Count, g.Kind))
	}
	if r.Succeeded != nil && r.Failed != nil {
		say("requests", fmt.Sprintf("%.0f succeeded, %.0f failed since it was loaded", *r.Succeeded, *r.Failed))
	}
	for i, p := range r.Percentiles {
		name := "so far"
		if len(r.Percentiles) > 1 {
			name = periodNames[i]
		}
		if p == nil {
			continue
		}
		text := fmt.Sprintf("p50 %s, p90 %s, p95 %s, p99 %s", duration(p.P50), duration(p.P90), duration(p.P95), duration(p.P99))
		if q := r.Queueing[i]; q != nil {
			text += fmt.Sprintf("; in the queue p50 %s, p99 %s", duration(q.P50), duration(q.P99))
		}
		say(name, text)
	}
	if r.Reason != "" {
		title := "reason"
		if r.State == ready {
			title = "the last reload failed"
		}
		lines = append(lines, textLine(title, faint))
		for text := range strings.SplitSeq(strings.TrimRight(r.Reason, ";\n"), "\n") {
			lines = append(lines, textLine("  "+indented(text), bad))
		}
	}
	for _, in := range r.Instances {
		if l := in.LastLoss; l != nil {
			lines = append(lines, textLine(fmt.Sprintf("last loss of %s (%s, %s)", clean(in.Name), l.Cause, l.At.Local().Format("15:04:05")), faint))
			for text := range strings.SplitSeq(l.Text, "\n") {
				lines = append(lines, textLine("  "+indented(text), bad))
			}
		}
	}
	return lines
}

// plain returns the view as text: all rows and errors.
func plain(v *View, u *ui) string {
	var lines []line
	lines = append(lines, head(v, u)...)
	rows := u.rows(v)
	lines = append(lines, modelTable(rows, u, 0)...)
	for _, r := range rows {
		if len(r.Instances) > 0 {
			lines = append(lines, nil, textLine("instances of "+clean(r.Model)+" version "+r.Version, plainText))
			lines = append(lines, instanceTable(r, v.At)...)
		}
		if r.Reason != "" && r.Reason != "unloaded" {
			title := "why " + clean(r.Model) + " is " + r.State
			if r.State == ready {
				title = "why the last reload of " + clean(r.Model) + " failed"
			}
			lines = append(lines, nil, textLine(title, plainText))
			for text := range strings.SplitSeq(strings.TrimRight(r.Reason, ";\n"), "\n") {
				lines = append(lines, textLine("  "+indented(text), plainText))
			}
		}
	}
	const lastErrors = 10
	if errors := v.Errors[max(0, len(v.Errors)-lastErrors):]; len(errors) > 0 {
		lines = append(lines, nil, textLine("last errors", plainText))
		lines = append(lines, logLines(errors, true)...)
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}
