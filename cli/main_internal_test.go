package cli

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

func TestUsageNamesEveryFlag(t *testing.T) {
	var b strings.Builder
	writeUsage(&b, "nereid")
	for _, want := range []string{
		"Usage: nereid [options]\n  --help\n\tShow",
		"\nServer:\n  --id <string>\n",
		"\n  --http-restricted-api <<string>:<string>=<string>>\n",
		"\nLimits:\n  --request-memory-byte-size <integer>\n",
		"\nNereid's own:\n  --http-cors-allow-origin <string>\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("usage does not contain %q", want)
		}
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > helpWidth+2 && strings.HasPrefix(line, "\t") {
			t.Errorf("got a line of %d bytes, want at most %d: %s", len(line), helpWidth+2, line)
		}
	}
}

func TestVersionIsShown(t *testing.T) {
	if status, stdout, stderr := RunAs("nereid", "version"); status != 0 || stdout != "nereid "+version+"\n" || stderr != "" {
		t.Errorf("version: got status %d, %q and %q", status, stdout, stderr)
	}
	if status, stdout, stderr := RunAs("nereid", "version", "--help"); status != 0 || !strings.HasPrefix(stdout, "Usage: nereid version [--json]\n") || stderr != "" {
		t.Errorf("version --help: got status %d, %q and %q, want its usage", status, stdout, stderr)
	}
	status, stdout, _ := RunAs("nereid", "version", "--json")
	var told map[string]string
	if err := json.Unmarshal([]byte(stdout), &told); err != nil || status != 0 || told["version"] != version || told["protocol"] == "" || told["platform"] == "" {
		t.Errorf("version --json: got status %d, %q and error %v, want an object", status, stdout, err)
	}
	for argument, want := range map[string]string{
		"-x":          "flag provided but not defined: --x",
		"--jsn":       "flag provided but not defined: --jsn; did you mean --json?",
		"--json=much": `invalid boolean value "much" for --json: want true or false`,
		"json":        `got "json", want nothing or --json`,
	} {
		want = "nereid version: " + want + "\nsee nereid version --help for the options\n"
		if status, stdout, stderr := RunAs("nereid", "version", argument); status != 2 || stdout != "" || stderr != want {
			t.Errorf("version %s: got status %d, %q and %q, want 2 and %q", argument, status, stdout, stderr, want)
		}
	}
}

// TestCommandsThatAreNearlyMeant checks that tritonserver's error for an unknown argument is
// followed by a similar command, on a terminal and elsewhere.
func TestCommandsThatAreNearlyMeant(t *testing.T) {
	for argument, want := range map[string]string{"topp": "top", "hlep": "help", "tpo": "top", "Serve": "serve", "models": "", "x": "", "ls": "", "": ""} {
		if got := nearestCommand(argument); got != want {
			t.Errorf("%q: got %q, want %q", argument, got, want)
		}
	}
	status, _, stderr := RunAs("nereid", "topp")
	if want := "<usage>\nUnexpected argument: topp\ndid you mean nereid top?\n"; status != 1 || stderr != want {
		t.Errorf("got status %d and %q, want 1 and %q", status, stderr, want)
	}
	if status, _, stderr = RunHere("topp"); status != 1 || stderr != "<usage>\nUnexpected argument: topp\n" {
		t.Errorf("as tritonserver: got status %d and %q, want its complaint alone", status, stderr)
	}
	tty, written := terminal.Open(t)
	run([]string{"nereid", "topp"}, NoEnv, tty, tty)
	if got, want := written(), "Unexpected argument: topp\ndid you mean nereid top? nereid --help lists all flags\n"; got != want {
		t.Errorf("at a terminal: got %q, want %q", got, want)
	}
}

// TestNereidAloneAtATerminal checks that a terminal shows the first steps, and that tritonserver
// prints its error.
func TestNereidAloneAtATerminal(t *testing.T) {
	for program, want := range map[string]struct {
		status int
		text   string
	}{"nereid": {2, "nereid serve DIR "}, "tritonserver": {1, "--model-repository must be specified"}} {
		tty, written := terminal.Open(t)
		status := run([]string{program}, NoEnv, tty, tty)
		if got := written(); status != want.status || !strings.Contains(got, want.text) || program == "nereid" && got != firstSteps {
			t.Errorf("%s: got status %d and %q, want %d and %q", program, status, got, want.status, want.text)
		}
	}
	if status, _, stderr := RunAs("nereid"); status != 1 || !strings.Contains(stderr, "--model-repository must be specified") {
		t.Errorf("in a pipe: got status %d and %q", status, stderr)
	}
}

func TestHelpShowsTheCommands(t *testing.T) {
	status, stdout, stderr := RunAs("nereid", "help")
	for _, c := range commands(NoEnv) {
		if !strings.Contains(stdout, "\n  "+c.name+" ") || !strings.Contains(stdout, c.summary+"\n") {
			t.Errorf("got %q, want %s in it", stdout, c.name)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("got status %d and %q, want 0 and nothing", status, stderr)
	}
	for argument, want := range map[string]string{"bench": "Usage: nereid bench MODEL [options]\n", "serve": "Usage: " + serveCall + "\n", "nothing": stdout} {
		if status, stdout, stderr := RunAs("nereid", "help", argument); status != 0 || !strings.HasPrefix(stdout, want) || stderr != "" {
			t.Errorf("help %s: got status %d, %q and %q, want %q", argument, status, stdout, stderr, want)
		}
	}
}

// TestEveryCommandHasItsTests checks that docs/tests.md has a row with the tests of each command.
func TestEveryCommandHasItsTests(t *testing.T) {
	page, err := os.ReadFile("../docs/tests.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| command | works | mistakes |")
	for _, c := range commands(NoEnv) {
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + c.name + "[` ][^|]*\\| `[^|]+\\| `[^|]+\\|$").MatchString(table) {
			t.Errorf("docs/tests.md has no row for nereid %s", c.name)
		}
	}
}
