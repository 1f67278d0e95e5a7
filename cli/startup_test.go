package cli

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/logs"
)

// The expected tables are tritonserver's.

func TestTablesAreDrawnAsTritonDraws(t *testing.T) {
	for _, test := range []struct {
		name    string
		headers []string
		rows    [][]string
		want    string
	}{
		{"no rows", []string{"Repository Agent", "Path"}, nil, `
+------------------+------+
| Repository Agent | Path |
+------------------+------+
+------------------+------+
`},
		{"line breaks", []string{"Model", "Version", "Status"}, [][]string{
			{"bad", "1", "UNAVAILABLE: Internal: ValueError: line one\nline two\ttab\n\nAt:\n  /r/bad/1/model.py(4): deeper\n" +
				"  /r/bad/1/model.py(5): initialize\n"},
			{"novers", "-", "Not loaded: No model version was found"},
			{"ok", "1", "READY"},
		}, `
+--------+---------+---------------------------------------------+
| Model  | Version | Status                                      |
+--------+---------+---------------------------------------------+
| bad    | 1       | UNAVAILABLE: Internal: ValueError: line one |
|        |         | line two	tab                                |
|        |         |                                             |
|        |         | At:                                         |
|        |         |   /r/bad/1/model.py(4): deeper              |
|        |         |   /r/bad/1/model.py(5): initialize          |
| novers | -       | Not loaded: No model version was found      |
| ok     | 1       | READY                                       |
+--------+---------+---------------------------------------------+
`},
		{"widths count bytes", []string{"A", "B"}, [][]string{{"é☃", ""}}, `
+-------+---+
| A     | B |
+-------+---+
| é☃ |   |
+-------+---+
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := logs.RenderTable(test.headers, test.rows); got != strings.TrimPrefix(test.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, test.want)
			}
		})
	}
}

func TestOptionTableShowsTheOptions(t *testing.T) {
	var stderr strings.Builder
	o, err := flags.Parse(strings.Fields("--model-repository=/r --model-repository=/q --model-control-mode=explicit --load-model=m "+
		"--strict-readiness=0 --rate-limit-resource=R:2 --cuda-memory-pool-byte-size=0:7 --min-supported-compute-capability=0"), NoEnv, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	want := `
+----------------------------------+-------------------------------------+
| Option                           | Value                               |
+----------------------------------+-------------------------------------+
| server_id                        | triton                              |
| server_version                   | 1.2.3                               |
| server_extensions                | a b(c)                              |
| model_repository_path[0]         | /q                                  |
| model_repository_path[1]         | /r                                  |
| model_control_mode               | MODE_EXPLICIT                       |
| startup_models_0                 | m                                   |
| strict_model_config              | 0                                   |
| model_config_name                |                                     |
| rate_limit                       | OFF                                 |
| rate_limit_resource[0]           | {"name":"R", "count":2 "device":-1} |
| pinned_memory_pool_byte_size     | 268435456                           |
| cuda_memory_pool_byte_size{0}    | 7                                   |
| min_supported_compute_capability | 0.0                                 |
| strict_readiness                 | 0                                   |
| exit_timeout                     | 30                                  |
| cache_enabled                    | 0                                   |
+----------------------------------+-------------------------------------+
`
	if got := optionTable(o, "1.2.3", []string{"a", "b(c)"}); got != want[1:] {
		t.Errorf("got\n%s\nwant%s", got, want)
	}
}

// TestOptionTableShowsNoSecret checks that secrets in repository URLs are hidden, even if the
// location is invalid.
func TestOptionTableShowsNoSecret(t *testing.T) {
	for path, want := range map[string]string{
		"as://acct?sig=SECRET":               "as://acct?…",
		"as://acct/container/dir?sig=SECRET": "as://acct/container/dir?…",
		"s3://SECRET:SECRET@host:90/bucket":  "s3://…@host:90/bucket",
		"gs://?key=SECRET":                   "gs://?…",
	} {
		o := flags.Defaults(NoEnv)
		o.Repository.Paths = []string{path}
		got := optionTable(o, "1", nil)
		if strings.Contains(got, "SECRET") || !strings.Contains(got, " "+want+" ") {
			t.Errorf("got\n%s\nwant %s in the place of %s", got, want, path)
		}
	}
}

func TestBackendTableShowsTheSettings(t *testing.T) {
	o := flags.Defaults(NoEnv)
	o.Backends.MinComputeCapability = 0 // with a CUDA driver it is 6
	o.Backends.Settings = map[string]map[string]string{"": {"zz": "1", "aa": `"<\`}, "python": {"zz": "9"}, "other": {"a": "b"}}
	got := backendTable([]backendRow{{"python", "p", o.BackendMessage("python")}})
	want := `{"cmdline":{"aa":"\"<\\","auto-complete-config":"true","backend-directory":"/opt/tritonserver/backends",` +
		`"min-compute-capability":"0.000000","zz":"9","default-max-batch-size":"4"}}`
	if line := "| python  | p    | " + want + " |\n"; !strings.Contains(got, line) {
		t.Errorf("got\n%s\nwant it to contain\n%s", got, line)
	}

	o.Backends.Settings[""]["default-max-batch-size"] = "8"
	if got := o.BackendMessage("other"); !strings.Contains(got, `"backend-directory":"/opt/tritonserver/backends","default-max-batch-size":"8","min-`) {
		t.Errorf("got %s, want the batch size in its place", got)
	}
}
