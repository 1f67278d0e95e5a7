package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli"
)

// oracleVariable names the directory of a real tritonserver, which "make differential" uses for
// comparison.
const oracleVariable = "NEREID_YARDSTICK"

// oracleLines are command lines with which tritonserver exits because it has no repository.
// Arguments are separated by spaces.
var oracleLines = []string{
	"", "--help", "--hel", "--help=3", "--", "-- x", "-", "-h", "-xy=3", "x", "x --bar", "--id=a x y", "--id",
	"--foo", "--foo=3", "--log", "--log=3", "--model-st", "--model-store", "--disable-auto=1", "--strict=x",
	"--http-port", "--http-port=", "--http-port=x", "--http-port x", "--http-port --id", "--http-port=0x10 --foo", "--http-port=5x",
	"--http-port=99999999999", "--http-port=-2147483649", "--http-port=8001", "--http-port=8002", "--grpc-port=8002",
	"--metrics-port=8000", "--http-port=8001 --grpc-address=127.0.0.1", "--http-port=8001 --load-model=a",
	"--http-port=8001 --grpc-port=8001 --metrics-port=8001", "--allow-http=false --http-port=8001", "--allow-metrics=0 --grpc-port=8002",
	"--metrics-address=127.0.0.1 --http-port=8002",
	"--log-info=maybe", "--log-info=", "--log-info", "--log-info=TRUE --foo", "--log-warning=oN --foo", "--log-error=2",
	"--log-format=iso8601", "--log-format=", "--log-verbose=true --foo", "--log-verbose=x", "--log-verbose=-1 --foo",
	"--log-verbose=2147483648", "--id=a\"b", "--id=", "--exit-timeout-secs=x", "--exit-timeout-secs=7", "--exit-timeout-secs=99999999999",
	"--model-control-mode=x", "--model-control-mode=EXPLICIT", "--model-control-mode=Poll", "--model-control-mode=",
	"--load-model=a", "--load-model=b --load-model=a --load-model=a --model-control-mode=explicit",
	"--repository-poll-secs=x", "--repository-poll-secs=99999999999", "--model-config-name=", "--model-config-name=h",
	"--model-load-thread-count=x", "--model-load-retry-count=99999999999", "--model-namespacing=x", "--enable-peer-access=x",
	"--strict-readiness=false", "--strict-readiness=x", "--exit-on-error=x", "--disable-auto-complete-config",
	"--strict-model-config=true", "--strict-model-config=x", "--disable-auto --strict-model-config=false",
	"--allow-http=x", "--reuse-http-port=x", "--http-thread-count=x", "--http-thread-count=99999999999",
	"--http-restricted-api=x", "--http-restricted-api=x:a=b", "--http-restricted-api=health:a", "--http-restricted-api=health:a=",
	"--http-restricted-api=health:=b", "--http-restricted-api=:a=b", "--http-restricted-api=health,x:a=b",
	"--http-restricted-api=health,:a=b", "--http-restricted-api=health,health:a=b", "--http-restricted-api=HEALTH:a=b",
	"--http-restricted-api=health:a=b --http-restricted-api=health:c=d", "--http-restricted-api=health:a:b=c --foo",
	"--grpc-restricted-protocol=x", "--grpc-restricted-protocol=x:a=b", "--grpc-restricted-protocol=health:a",
	"--grpc-restricted-protocol=health:a=b --grpc-restricted-protocol=logging,health:c=d",
	"--grpc-infer-allocation-pool-size=x", "--grpc-use-ssl=x", "--grpc-use-ssl-mutual=2", "--grpc-keepalive-time=99999999999",
	"--grpc-keepalive-timeout=x", "--grpc-keepalive-permit-without-calls=2", "--grpc-http2-max-pings-without-data=x",
	"--grpc-http2-min-recv-ping-interval-without-data=x", "--grpc-http2-max-ping-strikes=x", "--grpc-max-connection-age=x",
	"--grpc-max-connection-age-grace=x", "--grpc-infer-response-compression-level=x", "--grpc-infer-response-compression-level=HIGH --foo",
	"--allow-sagemaker=x", "--sagemaker-port=x", "--sagemaker-safe-port-range=5", "--sagemaker-safe-port-range=5-x",
	"--sagemaker-safe-port-range=1-2-3", "--sagemaker-thread-count=x", "--allow-vertex-ai=x", "--vertex-ai-port=x", "--vertex-ai-thread-count=x",
	"--allow-metrics=x", "--allow-gpu-metrics=x", "--allow-cpu-metrics=x", "--metrics-interval-ms=x", "--metrics-interval-ms=2.5",
	"--metrics-interval-ms=99999999999999999999", "--metrics-config=a", "--metrics-config=a=", "--metrics-config==a",
	"--metrics-config=a,b=c", "--metrics-config=,b=c", "--metrics-config=a=b,c",
	"--trace-config=a", "--trace-config=a,b", "--trace-config=a,b=c", "--trace-config=,a=b", "--trace-config==z", "--trace-config=rate=",
	"--trace-config=triton,file=", "--trace-config=triton,=x", "--trace-config=mode=x", "--trace-config=mode=triton,x",
	"--trace-config=mode=TRITON --foo", "--trace-config=level=x", "--trace-config=level=on --foo", "--trace-config=level=false --foo",
	"--trace-config=level=Min --foo", "--trace-config=rate=x", "--trace-config=rate=-1 --foo",
	"--trace-config=rate=5x --foo", "--trace-config=count=x", "--trace-config=foo=bar --foo", "--trace-config=opentelemetry,resource=a=b --foo",
	"--trace-level=x", "--trace-level=on --trace-level=tensors --foo", "--trace-rate=x", "--trace-rate=99999999999", "--trace-count=x",
	"--trace-log-frequency=x", "--trace-file=f --foo", "--trace-level=TENSORS --trace-config=level=OFF --trace-rate=5 --trace-config=rate=7",
	"--trace-count=5 --trace-config=count=7 --trace-file=5 --trace-config=triton,file=7 --trace-log-frequency=5 --trace-config=triton,log-frequency=7",
	"--backend-config=python", "--backend-config=python,a", "--backend-config=python,a=", "--backend-config=a=", "--backend-config=,a=b",
	"--backend-config==b", "--backend-config=python,=b", "--backend-config=a=b,c=d --foo", "--backend-config=a=b=c --foo",
	"--cache-config=local", "--cache-config=,a=b", "--cache-config=local,size", "--cache-config=local,size=", "--cache-config=size=5",
	"--response-cache-byte-size=x", "--response-cache-byte-size=5 --foo", "--response-cache-byte-size=5 --cache-config=local,size=5",
	"--response-cache-byte-size=5 --cache-config=local,size=5 --load-model=a", "--response-cache-byte-size=5 --cache-config=local,size=5 --http-port=8001",
	"--rate-limit=x", "--rate-limit=OFF", "--rate-limit-resource=a", "--rate-limit-resource=a:b", "--rate-limit-resource=a:",
	"--rate-limit-resource=a:1:b", "--rate-limit-resource=a:1:", "--rate-limit-resource=a:1:2:3",
	"--rate-limit-resource=b:1 --rate-limit-resource=a:2:1 --rate-limit-resource=c:3:0 --rate-limit-resource=b:4 --rate-limit-resource=:9",
	"--pinned-memory-pool-byte-size=x", "--pinned-memory-pool-byte-size=5", "--pinned-memory-pool-byte-size=99999999999999999999",
	"--cuda-memory-pool-byte-size=5", "--cuda-memory-pool-byte-size=0:x", "--cuda-memory-pool-byte-size=0:1:2 --foo",
	"--cuda-virtual-address-size=5", "--cuda-virtual-address-size=x:1", "--min-supported-compute-capability=x",
	"--min-supported-compute-capability=1e400", "--buffer-manager-thread-count=x", "--host-policy=a", "--host-policy=a,b",
	"--host-policy=a,b=", "--host-policy=,a=b", "--host-policy=a,=b", "--model-load-gpu-limit=5", "--model-load-gpu-limit=0:x",
	"--model-load-gpu-limit=0:1e400",
	"--allow-sagemaker=true --sagemaker-port=8000", "--allow-sagemaker=true --sagemaker-port=8001", "--allow-sagemaker=true --sagemaker-port=8002",
	"--allow-sagemaker=true --allow-vertex-ai=true", "--allow-vertex-ai=true --vertex-ai-port=8000", "--allow-vertex-ai=true --vertex-ai-port=8002",
	"--allow-sagemaker=true --sagemaker-safe-port-range=9000-9010", "--allow-sagemaker=true --sagemaker-safe-port-range=8000-8000",
	"--allow-sagemaker=true --sagemaker-safe-port-range=8000-8002 --allow-vertex-ai=true --vertex-ai-port=1",
	"--allow-sagemaker=true --sagemaker-safe-port-range=8001-8002 --grpc-port=8000",
}

// optionRow matches a row of a startup table whose first cell is an option.
var optionRow = regexp.MustCompile(`(?m)^\| ([a-z_]+(?:[\[{0-9_].*?)?) +\| (.*?) *\|$`)

// ourHint and valueHint match the hints that only this server prints.
var (
	ourHint   = regexp.MustCompile(`(?m)^unrecognized option .*: did you mean .*\n`)
	valueHint = regexp.MustCompile(`(?m)^--[a-z0-9-]+ is ".*", want .*\n`)
)

// TestAsTheOracle compares the program's output for each command line with a real tritonserver's,
// including the options in the startup table.
func TestAsTheOracle(t *testing.T) {
	dir := os.Getenv(oracleVariable)
	if dir == "" {
		t.Skip("compared with a real Triton by \"make differential\" alone")
	}
	oracle := filepath.Join(dir, "tritonserver")
	if _, err := os.Stat(oracle); err != nil {
		t.Skipf("no Triton to compare with: %v", err)
	}
	_, usage := runOracle(t, oracle, "--help")
	for _, line := range oracleLines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(line)
			wantStatus, want := runOracle(t, oracle, args...)
			status, stdout, got := cli.RunHere(args...)
			if status != wantStatus {
				t.Errorf("got status %d, want %d", status, wantStatus)
			}
			if strings.Contains(want, usage) {
				want = strings.Replace(want, usage, "<usage>\n", 1)
				got = valueHint.ReplaceAllString(ourHint.ReplaceAllString(got, ""), "")
				if got != want {
					t.Errorf("got  %q\nwant %q", got, want)
				}
				return
			}
			if last := lastLine(got); last != lastLine(want) {
				t.Errorf("got the last line %q, want %q", last, lastLine(want))
			}
			if got, want := optionRows(stdout), optionRows(want); got != want {
				t.Errorf("got the options\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// runOracle returns the status and the standard error output of tritonserver, which uses its full
// path as its name.
func runOracle(t *testing.T, oracle string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, oracle, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^/\S*/tritonserver: `).ReplaceAllString(stderr.String(), "tritonserver: ")
	return cmd.ProcessState.ExitCode(), text
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// optionRows returns the rows of the option table, except those that distinguish the two servers.
func optionRows(text string) string {
	var rows []string
	for _, match := range optionRow.FindAllStringSubmatch(text, -1) {
		switch match[1] {
		case "server_version", "server_extensions", "min_supported_compute_capability":
		default:
			rows = append(rows, match[1]+" = "+match[2])
		}
	}
	return strings.Join(rows, "\n")
}
