package logs

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

// TestFailuresAreToldOnce checks that log lines that repeat the progress display are omitted,
// unless a model wrote them or the log is verbose.
func TestFailuresAreToldOnce(t *testing.T) {
	const failure = "Failed to initialize Python stub: ValueError: no\n\nAt:\n  m.py(3): f\n\nTraceback (most recent call last):\n  raise"
	starting := true
	tell := func(file string, verbose int) string {
		tty, written := terminal.Open(t)
		o := Usual
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
