package flags

import (
	"encoding/json"
	stdflag "flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/python"
)

var update = stdflag.Bool("update", false, "rewrite the generated parts of docs/operations.md and of the chart's values.schema.json")

// The generated part of docs/operations.md lies between these lines.
const (
	tablesBegin = "<!-- Generated from the settings table: go test ./cli/flags -run TestGenerated -update -->\n"
	tablesEnd   = "<!-- End of the generated tables -->\n"
)

// sectionsOf links a group to the documentation with more detail.
var sectionsOf = map[string]string{
	"HTTPS": "[TLS](#tls)", "Sagemaker": "[In SageMaker and Vertex AI](#in-sagemaker-and-vertex-ai)", "Vertex": "[In SageMaker and Vertex AI](#in-sagemaker-and-vertex-ai)",
	"Model Repository": "[Scheduling](scheduling.md#lifecycle) and [object stores](object-stores.md)", "Metrics": "[Metrics of the server](#metrics-of-the-server) and [Status](#status)",
	"Tracing": "[Traces](traces.md)", "Backend": "[The Python backend](#the-python-backend)", "Response Cache": "[Response cache](scheduling.md#response-cache)",
	"Memory/Device Management": "[GPUs](gpu.md#flags)", "OpenAI": "[OpenAI](openai.md)",
	"Nereid's own": "[Limits](#limits), [Record and replay](record.md) and [the page](page.md)",
}

// TestGeneratedDocuments compares docs/operations.md and the schema of the chart's server.flags with
// the settings table.
func TestGeneratedDocuments(t *testing.T) {
	const operations, schema = "../../docs/operations.md", "../../deploy/helm/nereid/values.schema.json"
	generated(t, operations, tablesBegin, tablesEnd, flagTables())
	generated(t, schema, `        "flags": {`+"\n", `        "extraArgs": {`+"\n", flagsSchema(t))
}

// generated compares the part of a file between two lines with the wanted text, or replaces it.
func generated(t *testing.T, path, begin, end, want string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	got, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s: no lines %q and %q", path, begin, end)
	}
	if got == want {
		return
	}
	if !*update {
		t.Errorf("%s differs from the settings table: run go test ./cli/flags -run TestGenerated -update", path)
		return
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// flagTables returns a Markdown table for each group of flags.
func flagTables() string {
	defaults := withoutEnvironment()
	var b strings.Builder
	for _, g := range flagTable() {
		if g.title == "" {
			continue
		}
		fmt.Fprintf(&b, "\n### Flags: %s\n\n", g.title)
		if more := sectionsOf[g.title]; more != "" {
			fmt.Fprintf(&b, "See %s.\n\n", more)
		}
		b.WriteString("| flag | value | meaning |\n|---|---|---|\n")
		for _, f := range g.flags {
			fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.name, valueCell(&f), escapeCell(f.describe(defaults)))
		}
	}
	return b.String() + "\n"
}

func valueCell(f *flag) string {
	switch {
	case f.value == "":
		return ""
	case f.most == 0:
		return "`" + strings.Trim(f.value, "<>") + "`"
	case f.most >= math.MaxInt32:
		return fmt.Sprintf("%d or more", f.least)
	}
	return fmt.Sprintf("%d to %d", f.least, f.most)
}

func escapeCell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;", "*", "\\*").Replace(text)
}

// flagsSchema returns the JSON schema of the chart's server.flags: the flags that have one value
// and an effect, and that the chart does not set itself.
func flagsSchema(t *testing.T) string {
	t.Helper()
	template, err := os.ReadFile("../../deploy/helm/nereid/templates/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{"<boolean>": "boolean", "<integer>": "integer", "<float>": "number", "<string>": "string"}
	properties := map[string]any{}
	for _, g := range flagTable() {
		for _, f := range g.flags {
			kind, known := types[f.value]
			if !known || g.title == "DEPRECATED" || slices.Contains(noEffect, f.name) || strings.Contains(string(template), "--"+f.name+"=") || f.name == "model-store" {
				continue
			}
			property := map[string]any{"type": kind}
			if f.most != 0 {
				property["minimum"] = f.least
				if f.most < math.MaxInt32 {
					property["maximum"] = f.most
				}
			}
			properties[f.name] = property
		}
	}
	text, err := json.MarshalIndent(properties, "          ", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const indent = "          "
	return indent + `"type": "object",` + "\n" + indent + `"additionalProperties": false,` + "\n" + indent + `"properties": ` + string(text) + "\n        },\n"
}

// TestOperationsNamesEveryLimit checks that the table of limits has each limit flag with its
// default, in words or as a number.
func TestOperationsNamesEveryLimit(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	limits := section(t, string(text), "## Limits")
	defaults := withoutEnvironment()
	for _, f := range slices.Concat(limitFlags(), modelLimitFlags()) {
		want := f.preset(defaults)
		// "`--flag`, 8 KiB", or further flags of the same limit before it.
		found := regexp.MustCompile("`--" + f.name + "`(?:, `--[a-z-]+`)*, (\\d+(?: [KMG]iB| min| s|))(?: - 1|/s|)").FindStringSubmatch(limits)
		if found == nil {
			t.Errorf("docs/operations.md: the table of limits does not have --%s with its default", f.name)
			continue
		}
		if got := numberOf(t, found[1]); got != want && got != "2147483648" {
			t.Errorf("docs/operations.md: --%s is %s by default, want %s", f.name, got, want)
		}
	}
}

// numberOf parses "8 KiB" or "10 min".
func numberOf(t *testing.T, text string) string {
	t.Helper()
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	factor := map[string]int{"": 1, "s": 1, "min": 60, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
	return strconv.Itoa(n * factor)
}

// TestOperationsNamesEverySetting does the same for the keys of the Python backend, and of plugins.
func TestOperationsNamesEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, keys := range map[string][]string{"## The Python backend": python.Settings(), "## Backends that are plugins": native.Settings()} {
		if len(keys) == 0 {
			t.Fatalf("there are no settings for %q", heading)
		}
		for _, key := range keys {
			if !strings.Contains(section(t, string(text), heading), "`"+key+"`") {
				t.Errorf("docs/operations.md does not name the key %s below %q", key, heading)
			}
		}
	}
}

func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, heading+"\n")
	if !found {
		t.Fatalf("docs/operations.md: no heading %q", heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}
