package check

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/diagnosis"
)

// meaning reports settings that are almost certainly mistakes; the server also logs them when it
// loads the model. source is the text, or nil without a file; completes reports whether the model
// may change it.
func (c *check) meaning(e *models.Examined, source []byte, completes bool) {
	written, err := config.ParseText(e.File, source)
	if err != nil || source == nil {
		return
	}
	for _, d := range diagnosis.Doubts(written) {
		if !completes || !d.MayComplete() {
			c.doubt(e, source, d)
		}
	}
}

// doubt reports a suspicious setting, with its line.
func (c *check) doubt(e *models.Examined, source []byte, d diagnosis.Doubt) {
	name, line := regexp.QuoteMeta(d.Name), 0
	switch d.Rule {
	case diagnosis.RuleDuplicateName:
		line = definition(source, d.Field, d.Name, 2)
	case diagnosis.RuleInstanceCount:
		line = firstLine(source, `\bcount\s*:\s*`+name+`\b`)
	case diagnosis.RuleNoBatches:
		line = firstLine(source, `\bdynamic_batching\b`)
	case diagnosis.RuleWarmup:
		if line = firstLine(source, `\bkey\s*:\s*"`+name+`"`); d.Field == "batch_size" {
			line = firstLine(source, `"`+name+`"`, `\bmodel_warmup\b`)
		}
	case diagnosis.RuleLabels:
		_, line = c.lineOf(e, source, "'"+d.Name+"'")
	}
	c.report.add(finding{Severity: severityWarning, Rule: d.Rule, Model: e.Identity.String(), File: e.File, Line: line, Text: d.Text, Remedy: d.Remedy})
}

// listed matches the beginning of an input or an output, or a name.
var listed = regexp.MustCompile(`\b(input|output)\s*:?\s*[\[{]|\b(?:batch_input|batch_output|control_input|model_warmup|state|ensemble_scheduling)\s*:?\s*[\[{]|\bname\s*:\s*["']([^"'\n]*)["']`)

// definition returns the line of the nth tensor of a name, counted from 1, among the inputs or the
// outputs, or 0.
func definition(source []byte, kind, name string, nth int) int {
	within := ""
	for i, line := range bytes.Split(source, []byte("\n")) {
		code, _, _ := bytes.Cut(line, []byte("#"))
		for _, m := range listed.FindAllSubmatch(code, -1) {
			switch {
			case m[2] == nil:
				within = string(m[1])
			case within == kind && string(m[2]) == name:
				if nth--; nth == 0 {
					return i + 1
				}
			}
		}
	}
	return 0
}

// firstLine returns the number of the first line that matches a pattern, or 0. Earlier patterns
// take precedence, and comments do not count.
func firstLine(source []byte, patterns ...string) int {
	for _, text := range patterns {
		pattern := regexp.MustCompile(text)
		for i, line := range bytes.Split(source, []byte("\n")) {
			if code, _, _ := bytes.Cut(line, []byte("#")); pattern.Match(code) {
				return i + 1
			}
		}
	}
	return 0
}

// versionNames lists the version directories of a model in the order of their numbers.
func versionNames(directory string) (names []string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && numbered(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.ParseInt(a, 10, 64)
		y, _ := strconv.ParseInt(b, 10, 64)
		return int(min(max(x-y, -1), 1))
	})
	return names
}
