package logs_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

// interactively returns the output of an interactive log after write has run.
func interactively(t *testing.T, environment map[string]string, o logs.Options, write func(c *logs.Console, s *logs.Settings)) string {
	t.Helper()
	tty, written := terminal.Open(t)
	o.Interactive = true
	settings := logs.NewSettings(o)
	out, errs := logs.NewConsoles(tty, tty)
	log, lines, _, err := logs.New(settings, func(name string) string { return environment[name] }, out, errs)
	if err != nil {
		t.Fatal(err)
	}
	log.Info().Msg("loading: m:1")
	lines.Table("| a table |\n")
	log.Info().Str("model", "m").Msg("as it is")
	log.Warn().Msg("careful")
	log.Error().Msg("broken\n\nAt:\n  model.py(3): f")
	if write != nil {
		write(out, settings)
	}
	out.Flush()
	return regexp.MustCompile(`\d\d:\d\d:\d\d`).ReplaceAllString(written(), "NOW")
}

func TestInteractiveLines(t *testing.T) {
	dumb := map[string]string{"TERM": "dumb"}
	const want = "NOW as it is model=m\nNOW warning  careful\nNOW error  broken\n    \n    At:\n      model.py(3): f\n"
	if got := interactively(t, dumb, logs.Usual, nil); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := interactively(t, map[string]string{"NO_COLOR": "1"}, logs.Usual, nil); got != want {
		t.Errorf("NO_COLOR: got %q, want %q", got, want)
	}
	const painted = "\x1b[2mNOW\x1b[0m as it is model=m\n\x1b[2mNOW\x1b[0m \x1b[33mwarning\x1b[0m  careful\n\x1b[2mNOW\x1b[0m \x1b[31merror\x1b[0m  broken\n    \n    At:\n      model.py(3): f\n"
	if got := interactively(t, nil, logs.Usual, nil); got != painted {
		t.Errorf("got %q, want %q", got, painted)
	}
	verbose := logs.Usual
	verbose.Verbose = 1
	if got := interactively(t, dumb, verbose, nil); !regexp.MustCompile(`(?s)^NOW loading: m:1\n.*\| a table \|\n\nNOW as it is`).MatchString(got) {
		t.Errorf("verbose: got %q, want the routine and the tables too", got)
	}
}

// TestInteractiveNeedsATerminal checks that an interactive log writes Triton's lines if the
// environment configures their format.
func TestInteractiveNeedsATerminal(t *testing.T) {
	got := interactively(t, map[string]string{"TRITON_SERVER_ESCAPE_LOG_MESSAGES": "1"}, logs.Usual, nil)
	if !regexp.MustCompile(`(?s)^I\d{4} NOW\.\d{6} \d+ interactive_test.go:\d+\] "loading: m:1"\n.*a table`).MatchString(got) {
		t.Errorf("got %q, want Triton's lines", got)
	}
}

func TestStatusStaysBelow(t *testing.T) {
	got := interactively(t, map[string]string{"TERM": "dumb"}, logs.Options{}, func(c *logs.Console, _ *logs.Settings) {
		c.SetStatus("")
		c.SetStatus("one")
		fmt.Fprint(c, "a line\n")
		c.SetStatus("one")
		c.SetStatus("two")
		c.SetStatus("")
		fmt.Fprint(c, "the end\n")
	})
	if want := "one\r\x1b[Ka line\none\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kthe end\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
