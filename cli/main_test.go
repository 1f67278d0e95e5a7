package cli_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestHelpPrintsTheUsage(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"--he"}, {"--id", "x", "--help", "--nonsense"}} {
		status, stdout, stderr := cli.RunHere(args...)
		if status != 1 || stdout != "" || stderr != "<usage>\n" {
			t.Errorf("%q: got status %d, stdout %q, stderr %q, want 1, nothing and the usage", args, status, stdout, stderr)
		}
	}
}

func TestMissingRepositoryEndsTheServer(t *testing.T) {
	if _, stdout, _ := cli.RunHere(); !strings.Contains(optionRows(stdout), "exit_timeout = 30") {
		t.Errorf("got %q, want the table of options, as Triton shows it", stdout)
	}
	status, _, stderr := cli.RunHere("--log-info=false", "--log-error=off", "--load-model=*", "--model-control-mode=explicit")
	if want := "error: creating server: Invalid argument - --model-repository must be specified\n"; status != 1 || stderr != want {
		t.Errorf("got status %d, %q, want 1, %q", status, stderr, want)
	}
	status, _, stderr = cli.RunHere("--log-info=false", "--log-error=off", "--model-store=r", "--load-model=*", "--load-model=m",
		"--model-control-mode=explicit")
	if want := "error: creating server: Invalid argument - Wildcard model name '*' must be the ONLY startup model if specified at all.\n"; status != 1 || stderr != want {
		t.Errorf("got status %d, %q, want 1, %q", status, stderr, want)
	}
}

func TestNoEffectWarnsOnce(t *testing.T) {
	_, _, stderr := cli.RunHere("--log-info=false", "--log-error=off", "--cuda-memory-pool-byte-size=0:1", "--cuda-memory-pool-byte-size=1:1")
	if got := strings.Count(stderr, "--cuda-memory-pool-byte-size is accepted but has no effect"); got != 1 {
		t.Errorf("got %d warnings, want 1: %q", got, stderr)
	}
}

// TestEnvIsDecidedByTheFirstArgument checks that `nereid env` has its own usage, and that env is
// not a command after a flag.
func TestEnvIsDecidedByTheFirstArgument(t *testing.T) {
	status, stdout, stderr := cli.RunAs("nereid", "env", "--help")
	if status != 0 || !strings.HasPrefix(stdout, "Usage: nereid env COMMAND") || stderr != "" {
		t.Errorf("env --help: got status %d, %q and %q, want its usage", status, stdout, stderr)
	}
	status, _, stderr = cli.RunAs("nereid", "--log-info=false", "env")
	if status != 1 || !strings.Contains(stderr, "Unexpected argument: env") {
		t.Errorf("env behind a flag: got status %d and %q, want Triton's complaint", status, stderr)
	}
}

// TestTritonserverHasNoCommands checks that a program named tritonserver, or tritonserver as the
// first argument, accepts only tritonserver's command line.
func TestTritonserverHasNoCommands(t *testing.T) {
	for _, line := range [][]string{{"/opt/tritonserver/bin/tritonserver", "env"}, {"nereid", "tritonserver", "env"}, {"nereid", "tritonserver", "--log-info=false", "serve"}} {
		var out, err strings.Builder
		status := cli.Run(line, cli.NoEnv, &out, &err)
		if want := "Unexpected argument: " + line[len(line)-1]; status != 1 || out.Len() > 0 || !strings.Contains(err.String(), want) || !strings.HasPrefix(err.String(), "Usage: tritonserver ") {
			t.Errorf("%q: got status %d, %q and %q, want %q", line, status, out.String(), err.String(), want)
		}
	}
	if status, _, stderr := cli.RunAs("nereid-entrypoint", "no-such-program"); status != 1 || !strings.Contains(stderr, "neither a flag nor a program on PATH") {
		t.Errorf("an entry point: got status %d and %q, want the program refused", status, stderr)
	}
}

func TestNewIsACommand(t *testing.T) {
	status, stdout, stderr := cli.RunAs("nereid", "new", "--help")
	if status != 0 || !strings.HasPrefix(stdout, "Usage: nereid new KIND NAME") || stderr != "" {
		t.Errorf("new --help: got status %d, %q and %q, want its usage", status, stdout, stderr)
	}
}

// TestMistakesAreTwoLinesOnATerminal checks that errors on a terminal are short, while tritonserver
// and this server in a pipe list all flags.
func TestMistakesAreTwoLinesOnATerminal(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--http-prot=3"}, "nereid: unrecognized option '--http-prot=3'\ndid you mean --http-port? nereid --help lists all flags\n"},
		{[]string{"--http-port"}, "nereid: option '--http-port' requires an argument\nnereid --help lists all flags\n"},
		{[]string{"models"}, "Unexpected argument: models\nnereid --help lists all flags\n"},
		{[]string{"--http-port=x"}, "Bad option: \"--http-port\".\nInvalid option value. Got x\n" +
			"--http-port is \"x\", want <integer>: Port of the HTTP endpoint. Default: 8000.\nnereid --help lists all flags\n"},
	} {
		tty, written := terminal.Open(t)
		status := cli.Run(append([]string{"nereid"}, test.args...), cli.NoEnv, tty, tty)
		if got := written(); status != 1 || got != test.want {
			t.Errorf("%q: got status %d and %q, want 1 and %q", test.args, status, got, test.want)
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
		{[]string{"--openai-default-max-tokens=0"}, bad("--openai-default-max-tokens", "Provided option value is out of bound. Got 0")},
		{[]string{"--http-cors-allow-origin=a.example"}, bad("--http-cors-allow-origin", `origin "a.example": want a scheme and a host, and a port if it is not the usual one, such as https://example.org, or *`)},
		{[]string{"--http-max-input-size=0"}, bad("--http-max-input-size", "--http-max-input-size must be greater than 0")},
		{[]string{"--model-max-queued-requests=0"}, bad("--model-max-queued-requests", "Provided option value is out of bound. Got 0")},
		{[]string{"--model-max-printed-line-size=16777217"}, bad("--model-max-printed-line-size",
			"Provided option value is out of bound. Got 16777217")},
		{[]string{"--grpc-stream-window-size=1"}, bad("--grpc-stream-window-size", "Provided option value is out of bound. Got 1")},
		{[]string{"--grpc-infer-thread-count=1"}, bad("--grpc-infer-thread-count",
			"invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.")},
		{[]string{"--trace-config=mode=x"}, bad("--trace-config mode",
			`invalid value for trace mode option: x. Available options are "triton" and "opentelemetry"`)},
		{[]string{"--load-model=m"}, "<usage>\nError: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.\n"},
		{[]string{"--grpc-port=8000"}, "<usage>\nThe server cannot listen to HTTP requests and GRPC requests at the same address " +
			"and port 0.0.0.0:8000\n"},
		{[]string{"--log-file=/nonexistent/x"}, "error: --log-file: open /nonexistent/x: no such file or directory\n"},
	} {
		status, stdout, stderr := cli.RunHere(test.args...)
		stderr = valueHint.ReplaceAllString(stderr, "")
		if status != 1 || stdout != "" || stderr != test.want {
			t.Errorf("%q: got status %d, stdout %q, stderr\n%s\nwant\n%s", test.args, status, stdout, stderr, test.want)
		}
	}
}

// TestErrorsOfFlagsNameTheValidValues checks the line after Triton's text: the flag, its value, the
// valid values and the help.
func TestErrorsOfFlagsNameTheValidValues(t *testing.T) {
	for arg, want := range map[string]string{
		"--log-verbose=abc": "Bad option: \"--log-verbose\".\nInvalid option value. Got abc\n" +
			"--log-verbose is \"abc\", want <integer>: Verbosity level; 0: off. Default: 0.\n",
		"--model-control-mode=auto": "invalid argument for --model-control-mode\n" +
			"--model-control-mode is \"auto\", want <string>: Which models to load: \"none\": all, once at startup; \"poll\": ",
		"--trace-config=rate=fast": "Bad option: \"--trace-config rate\".\nInvalid option value. Got fast\n" +
			"--trace-config is \"rate=fast\", want <<string>,<string>=<string>>: Trace setting: level, rate, count or mode",
		"--grpc-max-message-size=2147483648": "Provided option value is out of bound. Got 2147483648\n" +
			"--grpc-max-message-size is \"2147483648\", want 1 to 2147483647: Maximum size of a gRPC request",
		"--http-idle-timeout-seconds=0": "Provided option value is out of bound. Got 0\n" +
			"--http-idle-timeout-seconds is \"0\", want 1 to 31622400: Time before an idle HTTP connection is closed, in seconds. Default: 600.\n",
		"--http-max-connections=8k": "want a whole number without a unit\n" +
			"--http-max-connections is \"8k\", want 1 or more: ",
	} {
		if status, _, stderr := cli.RunHere(arg); status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: got status %d and %q, want 1 and %q", arg, status, stderr, want)
		}
	}
}
