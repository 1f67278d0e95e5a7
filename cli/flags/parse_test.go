package flags_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/recording"
)

func noEnv(string) string { return "" }

func TestFlagsFillOptions(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want func(o *flags.Options)
	}{
		{"nothing", nil, func(*flags.Options) {}},
		{"value behind an equals sign", []string{"--http-port=80"}, func(o *flags.Options) { o.HTTP.Port = 80 }},
		{"value as the next argument", []string{"--http-port", "80", "--id", "--x"}, func(o *flags.Options) {
			o.HTTP.Port, o.ServerID = 80, "--x"
		}},
		{"prefix", []string{"--http-po=80", "--disable"}, func(o *flags.Options) {
			o.HTTP.Port, o.Repository.DisableAutoCompleteConfig = 80, true
		}},
		{"prefix of our own", []string{"--req=5"}, func(o *flags.Options) { o.RequestMemoryBytes = 5 }},
		{"exact name that begins another", []string{"--rate-limit=execution_count"}, func(o *flags.Options) {
			o.RateLimit.ExecutionCount = true
		}},
		{"booleans", []string{"--allow-http=FALSE", "--allow-grpc=off", "--allow-metrics=0", "--reuse-http-port=On"}, func(o *flags.Options) {
			o.HTTP.Allow, o.GRPC.Allow, o.Metrics.Allow, o.HTTP.ReusePort = false, false, false, true
		}},
		{"digits suffice", []string{"--http-port= +5x", "--metrics-interval-ms=2.5"}, func(o *flags.Options) {
			o.HTTP.Port, o.Metrics.Series.Interval = 5, 2*time.Millisecond
			o.Truncated = []string{
				`--http-port is " +5x", of which only 5 counts: want a whole number without a unit`,
				`--metrics-interval-ms is "2.5", of which only 2 counts: want a whole number without a unit`,
			}
		}},
		{"repositories", []string{"--model-store=b", "--model-repository", "a", "--model-s=b"}, func(o *flags.Options) {
			o.Repository.Paths = []string{"a", "b"}
		}},
		{"explicit", []string{"--model-control-mode=Explicit", "--load-model=b", "--load-model=a", "--load-model=b"}, func(o *flags.Options) {
			o.Repository.Control, o.Repository.StartupModels = nereid.ControlExplicit, []string{"a", "b"}
		}},
		{"poll", []string{"--model-control-mode=poll", "--repository-poll-secs=3"}, func(o *flags.Options) {
			o.Repository.Control, o.Repository.PollInterval = nereid.ControlPoll, 3*time.Second
		}},
		{"log", []string{"--log-verbose=TRUE", "--log-info=0", "--log-format=ISO8601", "--log-file=f"}, func(o *flags.Options) {
			o.Log = logs.Options{Warning: true, Error: true, Verbose: 1, ISO8601: true, File: "f"}
		}},
		{"metrics address follows", []string{"--http-address=::1"}, func(o *flags.Options) {
			o.HTTP.Address, o.Metrics.Address = "::1", "::1"
		}},
		{"metrics address stays", []string{"--http-address=::1", "--metrics-address=0.0.0.0"}, func(o *flags.Options) {
			o.HTTP.Address = "::1"
		}},
		{"metrics config", []string{"--metrics-config=summary_quantiles=0.5:0.1,0.9:0.1", "--metrics-config", "x=y=z"}, func(o *flags.Options) {
			o.MetricsSettings = []flags.Setting{{"summary_quantiles", "0.5:0.1,0.9:0.1"}, {"x", "y=z"}}
		}},
		{"origins", []string{"--http-cors-allow-origin=https://a.example:8443", "--http-cors-allow-origin=*"}, func(o *flags.Options) {
			o.HTTP.AllowOrigins = []string{"https://a.example:8443", "*"}
		}},
		{"record", []string{"--record=d", "--record-models=a,b", "--record-models=c", "--record-redact=X", "--record-max-requests=5", "--record-max-bytes=6"}, func(o *flags.Options) {
			o.Record = recording.Config{Directory: "d", Models: []string{"a", "b", "c"}, Redact: []string{"X"}, MaxRequests: 5, MaxBytes: 6}
		}},
		{"strict outputs", []string{"--strict-outputs=true"}, func(o *flags.Options) { o.StrictOutputs = true }},
		{"limits of models", []string{"--model-max-queued-requests=1", "--model-max-instances=2", "--model-max-requested-instances=3",
			"--model-max-load-files=4", "--model-max-printed-lines=5", "--model-printed-lines-per-second=6", "--model-max-printed-line-size=7",
			"--model-max-calls=8", "--model-max-call-size=9", "--model-max-call-files=10", "--model-max-memory-share=12", "--grpc-stream-window-size=65536", "--grpc-stream-full-timeout-seconds=11"}, func(o *flags.Options) {
			o.Limits = nereid.ModelLimits{QueuedRequests: 1, Processes: process.Limits{
				Instances: 2, Output: output.Limits{Burst: 5, PerSecond: 6, LineBytes: 7}, Calls: hostcalls.Limits{Most: 8, Bytes: 9, Files: 10}, MemoryShare: 12,
			}}
			o.ClientLimits.GroupInstances, o.ClientLimits.LoadFiles = 3, 4
			o.GRPC.StreamWindowBytes, o.GRPC.StreamFullTimeout = 65536, 11*time.Second
		}},
		{"limits of clients", []string{"--client-max-small-body-size=1", "--client-max-id-size=2", "--client-max-parameters-size=3", "--client-max-config-size=4"}, func(o *flags.Options) {
			o.ClientLimits = budget.Limits{SmallBody: 1, RequestID: 2, Parameters: 3, ConfigOverride: 4, LoadFiles: 16384, GroupInstances: 1024}
		}},
		{"backend config", []string{"--backend-config=python,a=1", "--backend-config=b=2", "--backend-config=python,a=x,y=3"}, func(o *flags.Options) {
			o.Backends.Settings = map[string]map[string]string{"python": {"a": "x,y=3"}, "": {"b": "2"}}
		}},
		{"openai", []string{"--openai-port=9000", "--openai-address=::1", "--openai-backend=vllm", "--openai-default-max-tokens=7", "--openai-tokenizer=t",
			"--openai-chat-template=c", "--openai-tensor=text_input=P", "--openai-tensor=text_output=A", "--openai-restricted-api=inference,health:k=v"}, func(o *flags.Options) {
			o.OpenAI = nereid.OpenAIOptions{Allow: true, Address: "::1", Port: 9000, Config: openai.Config{DefaultMaxTokens: 7, Format: "vllm", Tokenizer: "t", ChatTemplate: "c",
				Tensors:    map[string]string{"text_input": "P", "text_output": "A"},
				Restricted: []server.Restriction{{Groups: []string{"inference"}, Header: "k", Value: "v"}, {Groups: []string{"health"}, Header: "k", Value: "v"}}}}
		}},
		{"restricted", []string{"--http-restricted-api=health,trace:k=v=w", "--http-restricted-api=logging:l=m"}, func(o *flags.Options) {
			o.HTTP.Restricted = []server.Restriction{
				{Groups: []string{"health"}, Header: "k", Value: "v=w"}, {Groups: []string{"trace"}, Header: "k", Value: "v=w"},
				{Groups: []string{"logging"}, Header: "l", Value: "m"},
			}
		}},
		{"traces", []string{"--trace-config=level=on", "--trace-config=level=TENSORS", "--trace-config=rate=7", "--trace-config=TRITON,file=f"}, func(o *flags.Options) {
			o.Tracing.Levels, o.Tracing.Rate = []string{"TIMESTAMPS", "TENSORS"}, 7
			o.Tracing.Settings = map[string][]flags.Setting{"triton": {{"file", "f"}}}
		}},
		{"deprecated traces", []string{"--trace-level=OFF", "--trace-rate=3", "--trace-config=rate=9", "--trace-count=2", "--trace-file=f"}, func(o *flags.Options) {
			o.Tracing.Levels, o.Tracing.Rate, o.Tracing.Count = []string{"OFF"}, 9, 2
			o.Tracing.Settings = map[string][]flags.Setting{"triton": {{"file", "f"}}}
		}},
		{"devices", []string{"--cuda-memory-pool-byte-size=1:2:3", "--model-load-gpu-limit=0:.5"}, func(o *flags.Options) {
			o.Memory.CUDAPoolBytes, o.Backends.LoadGPULimit = map[int]uint64{1: 2}, map[int]float64{0: .5}
			o.NoEffect = []string{"cuda-memory-pool-byte-size"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr strings.Builder
			got, err := flags.Parse(test.args, noEnv, &stderr)
			if err != nil {
				t.Fatalf("got error %v, want none", err)
			}
			want := flags.Defaults(noEnv)
			want.Metrics.Address = "0.0.0.0"
			test.want(want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestGoMemoryLimitOfTheOperatorStays checks that the server sets no memory limit of the Go runtime
// if the environment has one.
func TestGoMemoryLimitOfTheOperatorStays(t *testing.T) {
	for value, want := range map[string]bool{"": true, "1GiB": false, "off": false} {
		getenv := func(name string) string { return map[string]string{"GOMEMLIMIT": value}[name] }
		o, err := flags.Defaults(getenv).ServerOptions(nil, getenv, zerolog.Nop(), io.Discard, io.Discard)
		if err != nil || o.LimitGoHeap != want {
			t.Errorf("GOMEMLIMIT=%s: got %v and error %v, want %v", value, o.LimitGoHeap, err, want)
		}
	}
}

func TestVertexFollowsTheEnvironment(t *testing.T) {
	env := map[string]string{"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "9000"}
	o := flags.Defaults(func(name string) string { return env[name] })
	if !o.VertexAI.Allow || o.VertexAI.Port != 9000 {
		t.Errorf("got %+v, want it allowed on port 9000", o.VertexAI)
	}
}

func FuzzParseOptions(f *testing.F) {
	for _, seed := range []string{
		"--http-port=1", "--trace-config\x00level=x", "--log", "-x", "--\x00a", "--http-restricted-api=a:b=c", "--backend-config=,=", "--=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var stderr strings.Builder
		o, err := flags.Parse(strings.Split(line, "\x00"), noEnv, &stderr)
		if (o == nil) == (err == nil) {
			t.Fatalf("got options %v and error %v, want one of them", o, err)
		}
	})
}

// TestStrictModelConfigTurnsAutoCompleteOff checks --disable-auto-complete-config and its
// deprecated predecessor --strict-model-config, with Triton's warnings.
func TestStrictModelConfigTurnsAutoCompleteOff(t *testing.T) {
	const (
		old        = "Warning: '--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead.\n"
		overridden = "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of '--disable-auto-complete-config'!\n"
	)
	for _, test := range []struct {
		args    []string
		disable bool
		stderr  string
	}{
		{nil, false, ""},
		{[]string{"--disable-auto-complete-config"}, true, ""},
		{[]string{"--strict-model-config=true"}, true, old},
		{[]string{"--strict-model-config=false"}, false, old},
		{[]string{"--strict-model-config=false", "--disable-auto-complete-config"}, true, old + overridden},
		{[]string{"--disable-auto-complete-config", "--strict-model-config=false"}, true, old + overridden},
		{[]string{"--disable-auto-complete-config", "--strict-model-config=true"}, true, old},
	} {
		var stderr strings.Builder
		o, err := flags.Parse(append(test.args, "--model-repository=r"), noEnv, &stderr)
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		if got := o.Repository.DisableAutoCompleteConfig; got != test.disable || stderr.String() != test.stderr {
			t.Errorf("%q: got %v and %q, want %v and %q", test.args, got, stderr.String(), test.disable, test.stderr)
		}
	}
}

// TestMistakesNameTheFlag checks that errors about values name the flag, never a field of a struct.
func TestMistakesNameTheFlag(t *testing.T) {
	for line, want := range map[string]string{
		"--http-port=70000":               "--http-port is 70000, want a port from 0 to 65535",
		"--openai-port=-1":                "--openai-port is -1, want a port from 0 to 65535",
		"--http-ui-port=70000":            "--http-ui-port is 70000, want a port from 0 to 65535",
		"--grpc-keepalive-time=-3":        `--grpc-keepalive-time is "-3", want 0 or more: `,
		"--http-header-forward-pattern=(": `--http-header-forward-pattern is "(", want <string>: Pass headers whose names match this regular expression`,
		"--grpc-use-ssl=true":             "Error: Use of '--grpc-use-ssl' requires '--grpc-server-cert' and '--grpc-server-key' as well.",
		"--grpc-use-ssl=true --grpc-server-cert=a --grpc-server-key=b --grpc-use-ssl-mutual=true": "Error: Use of '--grpc-use-ssl-mutual' requires '--grpc-root-cert' as well.",
		"--aloow-http=true": "unrecognized option '--aloow-http=true'",
	} {
		if _, err := flags.Parse(strings.Fields(line), noEnv, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", line, err, want)
		}
	}
	for line, want := range map[string]string{"--aloow-http": "did you mean --allow-http?", "--foo": ""} {
		var syntax *flags.SyntaxError
		if _, err := flags.Parse([]string{line}, noEnv, io.Discard); !errors.As(err, &syntax) || syntax.Hint != want {
			t.Errorf("%s: got %+v, want the hint %q", line, syntax, want)
		}
	}
}

// TestUnusableBackendSettingsEndTheStart checks that settings with which no Python model could run
// are one error about the flag.
func TestUnusableBackendSettingsEndTheStart(t *testing.T) {
	for line, want := range map[string]string{
		"--backend-config=python,shm-default-byte-size=x":        `--backend-config=python: shm-default-byte-size is "x", want a whole number without a unit, 1048576 to 9223372036854775807`,
		"--backend-config=env-build=x":                           `--backend-config: env-build is "x", want false or true`,
		"--backend-config=python,shm-max-byte-size=9":            "--backend-config=python: shm-max-byte-size is 9, want at least 1048576 (shm-default-byte-size)",
		"--backend-config=python,shm-default-byte-size=2097152M": "",
	} {
		o, err := flags.Parse([]string{line}, noEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.ServerOptions(nil, noEnv, zerolog.Nop(), io.Discard, io.Discard)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: got %s, want %q", line, got, want)
		}
	}
}
