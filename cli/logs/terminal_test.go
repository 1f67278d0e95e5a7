package logs_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

// TestTracebacksHaveLinesOnATerminal checks that a message keeps its lines on a terminal, indented
// and with control characters escaped, unless the environment selects another format.
func TestTracebacksHaveLinesOnATerminal(t *testing.T) {
	const message = "ValueError: \"no\"\n\nAt:\n  /m/model.py(3): f\nI0102 forged\x1b[2J\u009b\x7f\ttab\n"
	for _, c := range []struct{ name, env, want string }{
		{"by itself", "", "] ValueError: \"no\"\n    \n    At:\n      /m/model.py(3): f\n    I0102 forged\\u001B[2J\\u009B\\u007F\ttab\n"},
		{"escaped since the environment says so", "1", `] "ValueError: \"no\"\n\nAt:\n  /m/model.py(3): f\nI0102 forged\u001B[2J` + "\u009b\x7f" + `\ttab\n"` + "\n"},
		{"bare since the environment says so", "0", "] " + message + "\n"},
	} {
		tty, written := terminal.Open(t)
		out, errs := logs.NewConsoles(&bytes.Buffer{}, tty)
		log, _, _, err := logs.New(logs.NewSettings(logs.AllLines), func(string) string { return c.env }, out, errs)
		if err != nil {
			t.Fatal(err)
		}
		log.Error().Msg(message)
		errs.Flush()
		_, got, _ := strings.Cut(written(), "go:")
		if _, got, _ = strings.Cut(got, "]"); "]"+got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, "]"+got, c.want)
		}
	}
}

// TestPipesKeepTritonsLines checks that only the output that is a terminal has messages without
// quotes.
func TestPipesKeepTritonsLines(t *testing.T) {
	tty, written := terminal.Open(t)
	var errs bytes.Buffer
	out, _ := logs.NewConsoles(tty, &errs)
	log, _, _, err := logs.New(logs.NewSettings(logs.AllLines), func(string) string { return "" }, out, &errs)
	if err != nil {
		t.Fatal(err)
	}
	log.Info().Msg(`a "b"`)
	log.Error().Msg(`c "d"`)
	out.Flush()
	if got := written(); !strings.HasSuffix(got, "] a \"b\"\n") {
		t.Errorf("the terminal got %q, want a message without quotes", got)
	}
	if got := errs.String(); !strings.HasSuffix(got, `] "c \"d\""`+"\n") {
		t.Errorf("the pipe got %q, want a JSON string", got)
	}
}
