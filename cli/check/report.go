package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/models/diagnosis"
)

// Severities of findings, most severe first.
const (
	severityError   = "error"
	severityWarning = "warning"
	severityTriton  = "triton"
)

// finding is one result of the check. Texts are single lines.
type finding struct {
	Severity string `json:"severity"`
	Rule     string `json:"rule"`
	Model    string `json:"model,omitempty"`
	File     string `json:"file,omitempty"` // a file or a directory, as the user would write it
	Line     int    `json:"line,omitempty"` // from 1; 0 if unknown
	Column   int    `json:"column,omitempty"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy,omitempty"`
}

// String formats the finding like a compiler message.
func (f *finding) String() string {
	var b strings.Builder
	where := cmp.Or(f.File, f.Model)
	if where != "" {
		b.WriteString(where)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
			if f.Column > 0 {
				fmt.Fprintf(&b, ":%d", f.Column)
			}
		}
		b.WriteString(": ")
	}
	text := f.Text
	if f.Remedy != "" {
		text = strings.TrimRight(text, ".;") + "; " + f.Remedy
	}
	return b.String() + f.Severity + ": " + text
}

// modelReport has the findings of one model.
type modelReport struct {
	Name      string  `json:"name"`
	Directory string  `json:"directory,omitempty"`
	Versions  []int64 `json:"versions"`
	Backend   string  `json:"backend,omitempty"`
	Loaded    *bool   `json:"loaded,omitempty"` // nil: loading was not requested
	Tried     string  `json:"tried,omitempty"`  // "warm-up", "request" or "failed"
}

// report holds all findings.
type report struct {
	Models   []*modelReport `json:"models"`
	Findings []*finding     `json:"findings"`
	Errors   int            `json:"errors"`
	Warnings int            `json:"warnings"`
	Triton   int            `json:"triton"`
}

func (r *report) add(f finding) {
	f.Text = strings.ReplaceAll(strings.TrimSpace(f.Text), "\n", " ")
	if f.File != "" {
		f.File = filepath.Clean(f.File)
	}
	r.Findings = append(r.Findings, &f)
}

// hasError reports whether an error of the model is known.
func (r *report) hasError(model string) bool {
	return slices.ContainsFunc(r.Findings, func(f *finding) bool { return f.Model == model && f.Severity == severityError })
}

// hasText reports whether a finding contains the text.
func (r *report) hasText(text string) bool {
	return slices.ContainsFunc(r.Findings, func(f *finding) bool { return strings.Contains(f.Text, strings.TrimSpace(text)) })
}

// isDoubt reports whether a log line repeats a warning that is already a finding.
func (r *report) isDoubt(line string) bool {
	return slices.ContainsFunc(r.Findings, func(f *finding) bool {
		return f.Severity == severityWarning && strings.HasSuffix(line, "'"+f.Model+"': "+diagnosis.Doubt{Text: f.Text, Remedy: f.Remedy}.String())
	})
}

// finish sorts the findings by model and position, removes duplicates, and counts.
func (r *report) finish() {
	slices.SortStableFunc(r.Findings, func(a, b *finding) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	told := make(map[finding]bool)
	r.Findings = slices.DeleteFunc(r.Findings, func(f *finding) bool {
		key := finding{Severity: f.Severity, Model: f.Model, File: f.File, Line: f.Line, Text: f.Text}
		again := told[key]
		told[key] = true
		return again
	})
	for _, f := range r.Findings {
		switch f.Severity {
		case severityError:
			r.Errors++
		case severityWarning:
			r.Warnings++
		default:
			r.Triton++
		}
	}
	if r.Models == nil {
		r.Models = []*modelReport{}
	}
	if r.Findings == nil {
		r.Findings = []*finding{}
	}
}

func (r *report) writeText(w io.Writer) {
	for _, f := range r.Findings {
		fmt.Fprintln(w, f)
	}
	fmt.Fprintf(w, "%s: %s, %s, %s from Triton\n",
		plural(len(r.Models), "model"), plural(r.Errors, "error"), plural(r.Warnings, "warning"), plural(r.Triton, "difference"))
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
