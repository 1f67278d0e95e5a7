package logs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

// interactively returns the output of an interactive log for the text that write writes.
func interactively(t *testing.T, environment map[string]string, o Options, write func(c *Console, s *Settings)) string {
	t.Helper()
	tty, written := terminal.Open(t)
	o.Interactive = true
	settings := NewSettings(o)
	out, errs := NewConsoles(tty, tty)
	log, lines, _, err := New(settings, func(name string) string { return environment[name] }, out, errs)
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

// usual are the default options.
var usual = Options{Info: true, Warning: true, Error: true}

func TestInteractiveLines(t *testing.T) {
	dumb := map[string]string{"TERM": "dumb"}
	const want = "NOW as it is model=m\nNOW warning  careful\nNOW error  broken\n    \n    At:\n      model.py(3): f\n"
	if got := interactively(t, dumb, usual, nil); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := interactively(t, map[string]string{"NO_COLOR": "1"}, usual, nil); got != want {
		t.Errorf("NO_COLOR: got %q, want %q", got, want)
	}
	const painted = "\x1b[2mNOW\x1b[0m as it is model=m\n\x1b[2mNOW\x1b[0m \x1b[33mwarning\x1b[0m  careful\n\x1b[2mNOW\x1b[0m \x1b[31merror\x1b[0m  broken\n    \n    At:\n      model.py(3): f\n"
	if got := interactively(t, nil, usual, nil); got != painted {
		t.Errorf("got %q, want %q", got, painted)
	}
	verbose := usual
	verbose.Verbose = 1
	if got := interactively(t, dumb, verbose, nil); !regexp.MustCompile(`(?s)^NOW loading: m:1\n.*\| a table \|\n\nNOW as it is`).MatchString(got) {
		t.Errorf("verbose: got %q, want the routine and the tables too", got)
	}
}

// TestInteractiveNeedsATerminal checks that files and an environment variable select Triton's
// lines.
func TestInteractiveNeedsATerminal(t *testing.T) {
	got := interactively(t, map[string]string{"TRITON_SERVER_ESCAPE_LOG_MESSAGES": "1"}, usual, nil)
	if !regexp.MustCompile(`(?s)^I\d{4} NOW\.\d{6} \d+ interactive_test.go:\d+\] "loading: m:1"\n.*a table`).MatchString(got) {
		t.Errorf("got %q, want Triton's lines", got)
	}
}

func TestStatusStaysBelow(t *testing.T) {
	got := interactively(t, map[string]string{"TERM": "dumb"}, Options{}, func(c *Console, _ *Settings) {
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

// TestFailuresAreToldOnce checks that lines that repeat the progress display are left out, unless a
// model wrote them or the log is verbose.
func TestFailuresAreToldOnce(t *testing.T) {
	const failure = "Failed to initialize Python stub: ValueError: no\n\nAt:\n  m.py(3): f\n\nTraceback (most recent call last):\n  raise"
	starting := true
	tell := func(file string, verbose int) string {
		tty, written := terminal.Open(t)
		o := usual
		o.Interactive, o.Verbose = true, verbose
		out, errs := NewConsoles(tty, tty)
		settings := NewSettings(o)
		settings.SetStarting(starting)
		log, _, _, err := New(settings, func(name string) string { return map[string]string{"TERM": "dumb"}[name] }, out, errs)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range told {
			from := file
			if from == "" {
				from = one.file
			}
			log.Error().Str("file", from).Int("line", 1).Msg(one.beginning + one.has)
		}
		log.Error().Str("file", "loop.py").Int("line", 1).Msg(failure)
		out.Flush()
		errs.Flush()
		return written()
	}
	if got := tell("", 0); strings.Count(got, "error") != 1 || strings.Contains(got, "At:") || !strings.Contains(got, "no\n    \n    Traceback (most recent call last):\n      raise\n") {
		t.Errorf("got %q, want the traceback alone", got)
	}
	if got := tell("model.py", 0); strings.Count(got, "error") != len(told)+1 {
		t.Errorf("by a model: got %q, want all lines", got)
	}
	if got := tell("", 1); strings.Count(got, "error") != len(told)+1 || !strings.Contains(got, "At:") {
		t.Errorf("verbose: got %q, want all lines", got)
	}
	starting = false
	if got := tell("", 0); strings.Count(got, "error") != 2 || !strings.Contains(got, "error  .pbtxt:\n") {
		t.Errorf("when the server has started: got %q, want the place in the configuration, too", got)
	}
}
