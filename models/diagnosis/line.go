package diagnosis

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/models/config"
)

var (
	// missing matches names that the configuration gets wrong, in errors that also quote others.
	missing    = regexp.MustCompile(`(?: ambiguous:| non-existing input| non-existing output) ([^\s,]+)`)
	quoted     = regexp.MustCompile(`'([^'\n]+)'|"([^"\n]+)"|\b(?:input|output|tensor|model) (\w+)\b`)
	identifier = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b|\bdims\b|\breshape\b`)
)

// Line returns the number, from 1, of the first line of a configuration that a reason refers to: a
// line with a string that the reason quotes, except the model's name, or else one with a field that
// it names. It is 0 without such a line.
func Line(source []byte, model, reason string) int {
	lines := bytes.Split(source, []byte("\n"))
	find := func(pattern *regexp.Regexp) int {
		for i, line := range lines {
			code, _, _ := bytes.Cut(line, []byte("#"))
			if pattern.Match(code) {
				return i + 1
			}
		}
		return 0
	}
	for _, m := range append(missing.FindAllStringSubmatch(reason, -1), quoted.FindAllStringSubmatch(reason, -1)...) {
		word := strings.Join(m[1:], "")
		if word == model {
			continue
		}
		if at := find(regexp.MustCompile(`["']` + regexp.QuoteMeta(word) + `["']`)); at > 0 {
			return at
		}
	}
	known := config.FieldNames()
	for _, word := range identifier.FindAllString(reason, -1) {
		if !slices.Contains(known, word) {
			continue
		}
		if at := find(regexp.MustCompile(`\b` + word + `\b`)); at > 0 {
			return at
		}
	}
	return 0
}
