package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func noEnv(string) string { return "" }

// runHere runs the program and returns its status and output, with the usage shortened to
// "<usage>".
func runHere(args ...string) (status int, stdout, stderr string) {
	return runAs("/usr/local/bin/tritonserver", args...)
}

// runAs is runHere with another program name.
func runAs(program string, args ...string) (status int, stdout, stderr string) {
	var out, err strings.Builder
	status = run(append([]string{program}, args...), noEnv, &out, &err)
	var usage strings.Builder
	writeUsage(&usage, filepath.Base(program))
	return status, out.String(), strings.ReplaceAll(err.String(), usage.String(), "<usage>\n")
}

func TestHelpPrintsTheUsage(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"--he"}, {"--id", "x", "--help", "--nonsense"}} {
		status, stdout, stderr := runHere(args...)
		if status != 1 || stdout != "" || stderr != "<usage>\n" {
			t.Errorf("%q: got status %d, stdout %q, stderr %q, want 1, nothing and the usage", args, status, stdout, stderr)
		}
	}
}

func TestUsageNamesEveryFlag(t *testing.T) {
	var b strings.Builder
	writeUsage(&b, "nereid")
	for _, want := range []string{
		"Usage: nereid [options]\n  --help\n\tShow",
		"\nServer:\n  --id <string>\n",
		"\n  --http-restricted-api <<string>:<string>=<string>>\n",
		"\nNereid's own:\n  --request-memory-byte-size <integer>\n",
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

func TestMissingRepositoryEndsTheServer(t *testing.T) {
	if _, stdout, _ := runHere(); !strings.Contains(optionRows(stdout), "exit_timeout = 30") {
		t.Errorf("got %q, want the table of options, as Triton shows it", stdout)
	}
	status, _, stderr := runHere("--log-info=false", "--log-error=off", "--load-model=*", "--model-control-mode=explicit")
	if want := "error: creating server: Invalid argument - --model-repository must be specified\n"; status != 1 || stderr != want {
		t.Errorf("got status %d, %q, want 1, %q", status, stderr, want)
	}
	status, _, stderr = runHere("--log-info=false", "--log-error=off", "--model-store=r", "--load-model=*", "--load-model=m",
		"--model-control-mode=explicit")
	if want := "error: creating server: Invalid argument - Wildcard model name '*' must be the ONLY startup model if specified at all.\n"; status != 1 || stderr != want {
		t.Errorf("got status %d, %q, want 1, %q", status, stderr, want)
	}
}

func TestNoEffectWarnsOnce(t *testing.T) {
	_, _, stderr := runHere("--log-info=false", "--log-error=off", "--cuda-memory-pool-byte-size=0:1", "--cuda-memory-pool-byte-size=1:1")
	if got := strings.Count(stderr, "--cuda-memory-pool-byte-size is accepted but has no effect"); got != 1 {
		t.Errorf("got %d warnings, want 1: %q", got, stderr)
	}
}

// TestEnvIsDecidedByTheFirstArgument checks that the server's flags are not parsed, and that the
// usage is the command's own.
func TestEnvIsDecidedByTheFirstArgument(t *testing.T) {
	status, stdout, stderr := runAs("nereid", "env", "--help")
	if status != 0 || !strings.HasPrefix(stdout, "Usage: nereid env COMMAND") || stderr != "" {
		t.Errorf("env --help: got status %d, %q and %q, want its usage", status, stdout, stderr)
	}
	status, _, stderr = runAs("nereid", "--log-info=false", "env")
	if status != 1 || !strings.Contains(stderr, "Unexpected argument: env") {
		t.Errorf("env behind a flag: got status %d and %q, want Triton's complaint", status, stderr)
	}
}

// TestTritonserverHasNoCommands checks that a program or a first argument of that name accepts only
// tritonserver's command line.
func TestTritonserverHasNoCommands(t *testing.T) {
	for _, line := range [][]string{{"/opt/tritonserver/bin/tritonserver", "env"}, {"nereid", "tritonserver", "env"}, {"nereid", "tritonserver", "--log-info=false", "serve"}} {
		var out, err strings.Builder
		status := run(line, noEnv, &out, &err)
		if want := "Unexpected argument: " + line[len(line)-1]; status != 1 || out.Len() > 0 || !strings.Contains(err.String(), want) || !strings.HasPrefix(err.String(), "Usage: tritonserver ") {
			t.Errorf("%q: got status %d, %q and %q, want %q", line, status, out.String(), err.String(), want)
		}
	}
	if status, _, stderr := runAs("nereid-entrypoint", "no-such-program"); status != 1 || !strings.Contains(stderr, "neither a flag nor a program on PATH") {
		t.Errorf("an entry point: got status %d and %q, want the program refused", status, stderr)
	}
}

func TestNewIsACommand(t *testing.T) {
	status, stdout, stderr := runAs("nereid", "new", "--help")
	if status != 0 || !strings.HasPrefix(stdout, "Usage: nereid new KIND NAME") || stderr != "" {
		t.Errorf("new --help: got status %d, %q and %q, want its usage", status, stdout, stderr)
	}
}

// TestMistakesAreTwoLinesOnATerminal compares this with tritonserver, and this server in a pipe,
// which list all flags.
func TestMistakesAreTwoLinesOnATerminal(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--http-prot=3"}, "nereid: unrecognized option '--http-prot=3'\ndid you mean --http-port? nereid --help lists all flags\n"},
		{[]string{"--http-port"}, "nereid: option '--http-port' requires an argument\nnereid --help lists all flags\n"},
		{[]string{"models"}, "Unexpected argument: models\nnereid --help lists all flags\n"},
		{[]string{"--http-port=x"}, "Bad option: \"--http-port\".\nInvalid option value. Got x\nnereid --help lists all flags\n"},
	} {
		tty, written := terminal.Open(t)
		status := run(append([]string{"nereid"}, test.args...), noEnv, tty, tty)
		if got := written(); status != 1 || got != test.want {
			t.Errorf("%q: got status %d and %q, want 1 and %q", test.args, status, got, test.want)
		}
	}
}

func TestVersionIsShown(t *testing.T) {
	if status, stdout, stderr := runAs("nereid", "version"); status != 0 || stdout != "nereid "+version+"\n" || stderr != "" {
		t.Errorf("version: got status %d, %q and %q", status, stdout, stderr)
	}
	if status, stdout, stderr := runAs("nereid", "version", "--help"); status != 0 || !strings.HasPrefix(stdout, "Usage: nereid version [--json]\n") || stderr != "" {
		t.Errorf("version --help: got status %d, %q and %q, want its usage", status, stdout, stderr)
	}
	status, stdout, _ := runAs("nereid", "version", "--json")
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
		if status, stdout, stderr := runAs("nereid", "version", argument); status != 2 || stdout != "" || stderr != want {
			t.Errorf("version %s: got status %d, %q and %q, want 2 and %q", argument, status, stdout, stderr, want)
		}
	}
}

// TestCommandsThatAreNearlyMeant checks that a similar command is suggested after tritonserver's
// error, on a terminal and elsewhere.
func TestCommandsThatAreNearlyMeant(t *testing.T) {
	for argument, want := range map[string]string{"topp": "top", "hlep": "help", "tpo": "top", "Serve": "serve", "models": "", "x": "", "ls": "", "": ""} {
		if got := nearestCommand(argument); got != want {
			t.Errorf("%q: got %q, want %q", argument, got, want)
		}
	}
	status, _, stderr := runAs("nereid", "topp")
	if want := "<usage>\nUnexpected argument: topp\ndid you mean nereid top?\n"; status != 1 || stderr != want {
		t.Errorf("got status %d and %q, want 1 and %q", status, stderr, want)
	}
	if status, _, stderr = runHere("topp"); status != 1 || stderr != "<usage>\nUnexpected argument: topp\n" {
		t.Errorf("as tritonserver: got status %d and %q, want its complaint alone", status, stderr)
	}
	tty, written := terminal.Open(t)
	run([]string{"nereid", "topp"}, noEnv, tty, tty)
	if got, want := written(), "Unexpected argument: topp\ndid you mean nereid top? nereid --help lists all flags\n"; got != want {
		t.Errorf("at a terminal: got %q, want %q", got, want)
	}
}

func TestHelpShowsTheCommands(t *testing.T) {
	status, stdout, stderr := runAs("nereid", "help")
	for _, c := range commands(noEnv) {
		if !strings.Contains(stdout, "\n  "+c.name+" ") || !strings.Contains(stdout, c.summary+"\n") {
			t.Errorf("got %q, want %s in it", stdout, c.name)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("got status %d and %q, want 0 and nothing", status, stderr)
	}
	for argument, want := range map[string]string{"bench": "Usage: nereid bench MODEL [options]\n", "serve": "Usage: " + serveCall + "\n", "nothing": stdout} {
		if status, stdout, stderr := runAs("nereid", "help", argument); status != 0 || !strings.HasPrefix(stdout, want) || stderr != "" {
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
	for _, c := range commands(noEnv) {
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + c.name + "[` ][^|]*\\| `[^|]+\\| `[^|]+\\|$").MatchString(table) {
			t.Errorf("docs/tests.md has no row for nereid %s", c.name)
		}
	}
}

func TestWrongFlagsAreExplained(t *testing.T) {
	bad := func(option, reason string) string {
		return "<usage>\nBad option: \"" + option + "\".\n" + reason + "\n"
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--http-prot=3"}, "tritonserver: unrecognized option '--http-prot=3'\n<usage>\n" +
			"unrecognized option '--http-prot=3': did you mean --http-port?\n"},
		{[]string{"-h"}, "tritonserver: invalid option -- 'h'\n<usage>\n"},
		{[]string{"--http-port"}, "tritonserver: option '--http-port' requires an argument\n<usage>\n"},
		{[]string{"--help=3"}, "tritonserver: option '--help' doesn't allow an argument\n<usage>\n"},
		{[]string{"--strict"}, "tritonserver: option '--strict' is ambiguous; possibilities: '--strict-readiness' " +
			"'--strict-model-config'\n<usage>\n"},
		{[]string{"a", "--id=x", "b"}, "<usage>\nUnexpected argument: a\n"},
		{[]string{"--", "--id=x"}, "<usage>\nUnexpected argument: --id=x\n"},
		{[]string{"--http-port=x"}, bad("--http-port", "Invalid option value. Got x")},
		{[]string{"--log-verbose=2147483648"}, bad("--log-verbose", "Provided option value is out of bound. Got 2147483648")},
		{[]string{"--log-info="}, bad("--log-info", "invalid value for bool option: ")},
		{[]string{"--model-config-name="}, bad("--model-config-name", "Error: empty argument for --model-config-name")},
		{[]string{"--openai-restricted-api=embedding:k=v"}, bad("--openai-restricted-api", "Unknown API 'embedding'. Available APIs: "+
			"['inference', 'model-repository', 'metrics', 'health']")},
		{[]string{"--openai-restricted-api=health:k=v", "--openai-restricted-api=health:k=w"}, bad("--openai-restricted-api",
			"restricted api 'health' can not be specified in multiple config groups")},
		{[]string{"--openai-backend=other"}, bad("--openai-backend", "invalid argument for --openai-backend. Must be vllm or tensorrtllm.")},
		{[]string{"--openai-tensor=text_input"}, bad("--openai-tensor", "--openai-tensor option format is <tensor>=<name>. Got text_input")},
		{[]string{"--openai-default-max-tokens=0"}, bad("--openai-default-max-tokens", "--openai-default-max-tokens must be greater than 0")},
		{[]string{"--http-cors-allow-origin=a.example"}, bad("--http-cors-allow-origin", `origin "a.example": want a scheme and a host, and a port if it is not the usual one, such as https://example.org, or *`)},
		{[]string{"--http-max-input-size=0"}, bad("--http-max-input-size", "--http-max-input-size must be greater than 0")},
		{[]string{"--model-max-queued-requests=0"}, bad("--model-max-queued-requests", "--model-max-queued-requests must be greater than 0")},
		{[]string{"--model-max-printed-line-size=16777217"}, bad("--model-max-printed-line-size",
			"--model-max-printed-line-size must be 1 to 16777216")},
		{[]string{"--grpc-stream-window-size=1"}, bad("--grpc-stream-window-size", "--grpc-stream-window-size must be 65536 to 536870912")},
		{[]string{"--grpc-infer-thread-count=1"}, bad("--grpc-infer-thread-count",
			"invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.")},
		{[]string{"--trace-config=mode=x"}, bad("--trace-config mode",
			`invalid value for trace mode option: x. Available options are "triton" and "opentelemetry"`)},
		{[]string{"--load-model=m"}, "<usage>\nError: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.\n"},
		{[]string{"--grpc-port=8000"}, "<usage>\nThe server cannot listen to HTTP requests and GRPC requests at the same address " +
			"and port 0.0.0.0:8000\n"},
		{[]string{"--log-file=/nonexistent/x"}, "error: --log-file: open /nonexistent/x: no such file or directory\n"},
	} {
		status, stdout, stderr := runHere(test.args...)
		if status != 1 || stdout != "" || stderr != test.want {
			t.Errorf("%q: got status %d, stdout %q, stderr\n%s\nwant\n%s", test.args, status, stdout, stderr, test.want)
		}
	}
}
