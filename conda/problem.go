package conda

import (
	"fmt"
	"strings"
)

// Problem is something that keeps an environment from working, or that is worth a warning.
type Problem struct {
	// Text is a sentence: what was found, and what was wanted.
	Text string `json:"problem"`
	// Remedy is what mends it, mostly a command.
	Remedy string `json:"remedy,omitempty"`
	// Warning says that models run in spite of it.
	Warning bool `json:"warning,omitempty"`
}

// Error gives text and remedy in one line.
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

// quote writes a path as an argument of a shell.
func quote(path string) string {
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
