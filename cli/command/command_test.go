package command_test

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
)

// TestMistakesAreTwoLines checks that errors about flags spell them with two dashes, as the usage
// does.
func TestMistakesAreTwoLines(t *testing.T) {
	for argument, want := range map[string]string{
		"--x":             "flag provided but not defined: --x",
		"--duration":      "flag needs an argument: --duration",
		"--duration=10":   `invalid value "10" for flag --duration: want a time such as 10s`,
		"--count=x":       `invalid value "x" for flag --count: want a whole number`,
		"--share=x":       `invalid value "x" for flag --share: want a number`,
		"--duratoin=1s":   "flag provided but not defined: --duratoin; did you mean --duration?",
		"--json=perhaps":  `invalid boolean value "perhaps" for --json: want true or false`,
		"--input=for -it": `invalid value "for -it" for flag --input: strange`,
	} {
		flags := command.Flags("act")
		flags.Duration("duration", time.Second, "")
		flags.Int("count", 1, "")
		flags.Float64("share", 1, "")
		flags.Bool("json", false, "")
		flags.Func("input", "", func(string) error { return command.Usagef("strange") })
		_, err := command.Parse(flags, []string{argument})
		var out, errs strings.Builder
		status := command.End("nereid act", err, func(w io.Writer) { command.Usage(w, "nereid act", "Acts.", flags) }, &out, &errs)
		if want = "nereid act: " + want + "\nsee nereid act --help for the options\n"; status != command.StatusUsage || out.Len() > 0 || errs.String() != want {
			t.Errorf("%s: got status %d, %q and %q, want %d and %q", argument, status, out.String(), errs.String(), command.StatusUsage, want)
		}
	}
	var out, errs strings.Builder
	if status := command.End("nereid act", flag.ErrHelp, func(w io.Writer) { fmt.Fprint(w, "the usage") }, &out, &errs); status != command.StatusOK || out.String() != "the usage" || errs.Len() > 0 {
		t.Errorf("help: got status %d, %q and %q, want the usage", status, out.String(), errs.String())
	}
}

// TestPlaceholdersHaveOneStyle checks that values are named in capitals, or by the choices.
func TestPlaceholdersHaveOneStyle(t *testing.T) {
	flags := command.Flags("x")
	flags.Int("count", 0, "a count")
	flags.Duration("limit", 0, "a limit")
	flags.String("text", "", "a text")
	flags.String("file", "", "a `FILE`")
	var protocol string
	command.Choice(flags, &protocol, "protocol", "http", "a protocol", "http", "grpc")
	var b strings.Builder
	command.Usage(&b, "x", "y", flags)
	for _, want := range []string{"--count N\n", "--limit TIME\n", "--text TEXT\n", "--file FILE\n", "--protocol http|grpc\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got %s, want %s", &b, want)
		}
	}
}
