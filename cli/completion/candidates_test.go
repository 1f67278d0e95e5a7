package completion

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var program = command.Description{
	Name: "prog", Call: "prog [options]",
	Flags: []command.Flag{
		{Name: "mode", Value: "<string>", Help: `Which: "fast" or "slow".` + "\nSecond line."},
		{Name: "mood", Value: "<boolean>", Help: "On or off."},
		{Name: "store", Value: "<string>", Help: "A directory of things."},
		{Name: "count", Value: "<integer>", Help: "How many."},
		{Name: "help", Help: "Show this."},
	},
	Commands: []command.Description{
		{Name: "run", Call: "prog run FILE", Summary: "Runs a file.", Flags: []command.Flag{{Name: "fast", Help: "Be fast."}, {Name: "out", Value: "FILE"}}},
		{Name: "tree", Call: "prog tree COMMAND", Summary: "Trees.", Commands: []command.Description{
			{Name: "list", Call: "prog tree list", Summary: "Lists."}, {Name: "run", Call: "prog tree run NAME", Summary: "Runs."},
		}},
	},
}

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
		got := complete(program, strings.Split(test.line, " "))
		var words []string
		for _, c := range got.candidates {
			words = append(words, c.word)
		}
		if found := strings.Join(words, " "); found != test.want || got.files != test.files {
			t.Errorf("%q: got %q and files %q, want %q and %q", test.line, found, got.files, test.want, test.files)
		}
	}
}

// TestCandidatesAreLines checks the tabs at which the scripts split candidates.
func TestCandidatesAreLines(t *testing.T) {
	var out, errs strings.Builder
	status := Run([]string{"candidates", "--", "--mode"}, func() command.Description { return program }, &out, &errs)
	if want := "none\n--mode\tWhich: \"fast\" or \"slow\".\n"; status != 0 || out.String() != want || errs.Len() > 0 {
		t.Errorf("got status %d, %q and %q, want %q", status, out.String(), errs.String(), want)
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
