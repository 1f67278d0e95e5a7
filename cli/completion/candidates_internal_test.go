package completion

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
)

func TestCandidates(t *testing.T) {
	for _, test := range []struct{ line, files, want string }{
		{"", "none", "run tree"},
		{"r", "none", "run"},
		{"x r", "none", ""}, // only the first word is a command
		{"--help r", "none", ""},
		{"--mo", "none", "--mode --mood"},
		{"--mode ", "none", "fast slow"},
		{"--mode=s", "none", "--mode=slow"},
		{"--mood ", "none", "true false"},
		{"--store ", "directories", ""},
		{"--store=x", "directories", ""},
		{"--count ", "none", ""},
		{"--unknown=", "none", ""},
		{"--mode fast --h", "none", "--help"},
		{"run ", "files", ""},
		{"run --", "none", "--fast --out"},
		{"run --out ", "files", ""},
		{"run --fast x", "files", ""},
		{"tree ", "none", "list run"},
		{"tree run ", "none", ""},
		{"tree x r", "none", ""},
		{"tree --x l", "none", "list"},
	} {
		got := complete(Program, strings.Split(test.line, " "))
		var words []string
		for _, c := range got.candidates {
			words = append(words, c.word)
		}
		if found := strings.Join(words, " "); found != test.want || got.files != test.files {
			t.Errorf("%q: got %q and files %q, want %q and %q", test.line, found, got.files, test.want, test.files)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "Usage: nereid completion SHELL\n"},
		{[]string{"tcsh"}, "nereid completion: unknown shell \"tcsh\"\nwant bash, zsh, fish; see nereid completion --help\n"},
		{[]string{"bash", "x"}, "nereid completion bash: unexpected argument \"x\"\nsee nereid completion bash --help for the options\n"},
		{[]string{"bash", "--x"}, "nereid completion bash: flag provided but not defined: --x\nsee nereid completion bash --help for the options\n"},
	} {
		var out, errs strings.Builder
		status := Run(test.args, nil, &out, &errs)
		if status != command.StatusUsage || out.Len() > 0 || !strings.HasPrefix(errs.String(), test.want) {
			t.Errorf("%q: got status %d, %q and %q, want 2 and %q", test.args, status, out.String(), errs.String(), test.want)
		}
	}
	for _, args := range [][]string{{"--help"}, {"zsh", "--help"}} {
		var out strings.Builder
		if status := Run(args, nil, &out, &strings.Builder{}); status != 0 || !strings.HasPrefix(out.String(), "Usage: nereid completion") {
			t.Errorf("%q: got status %d and %q, want the usage", args, status, out.String())
		}
	}
	for _, shell := range shells {
		var out strings.Builder
		if status := Run([]string{shell.Name}, nil, &out, &strings.Builder{}); status != 0 || !strings.Contains(out.String(), fmt.Sprintf("Completion of nereid for %s", shell.Name)) {
			t.Errorf("%s: got status %d and %q, want its script", shell.Name, status, out.String())
		}
	}
}
