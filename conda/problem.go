package conda

import (
	"fmt"
	"strings"
)

// Problem is a fault that keeps an environment from working, or a warning.
type Problem struct {
	// Text is a sentence: the finding and the expectation.
	Text string `json:"problem"`
	// Remedy is the repair, usually a command.
	Remedy string `json:"remedy,omitempty"`
	// Warning reports that models run nevertheless.
	Warning bool `json:"warning,omitempty"`
}

// Error returns text and remedy in one line.
func (p *Problem) Error() string {
	if p.Remedy == "" {
		return p.Text
	}
	return p.Text + "; " + p.Remedy
}

// problem makes a Problem. The remedy begins with a verb.
func problem(remedy, format string, args ...any) *Problem {
	return &Problem{Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

// shortened truncates a text of a model's author for messages.
func shortened(text string) string {
	const most = 512
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// quote writes a path as an argument of a shell.
func quote(path string) string {
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" // bound: a path
}
