package flags

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/python"
)

// sectionsOf links a group to the documentation with more detail.
var sectionsOf = map[string]string{
	"HTTPS": "[TLS](#tls)", "Sagemaker": "[In SageMaker and Vertex AI](#in-sagemaker-and-vertex-ai)", "Vertex": "[In SageMaker and Vertex AI](#in-sagemaker-and-vertex-ai)",
	"Model Repository": "[Scheduling](scheduling.md#lifecycle) and [object stores](object-stores.md)", "Metrics": "[Metrics of the server](#metrics-of-the-server) and [Status](#status)",
	"Tracing": "[Traces](traces.md)", "Backend": "[The Python backend](#the-python-backend)", "Response Cache": "[Response cache](scheduling.md#response-cache)",
	"Memory/Device Management": "[GPUs](gpu.md#flags)", "OpenAI": "[OpenAI](openai.md)",
	"Limits":       "[The limits without a flag](#limits), and [Memory](#memory) for the account and its shares",
	"Nereid's own": "[Record and replay](record.md) and [the page](page.md)",
}

// FlagTables returns a Markdown table for each group of flags.
func FlagTables() string {
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
		head, line := "| flag | value | meaning |", "|---|---|---|"
		if g.title == "Limits" {
			head, line = head+" if exceeded |", line+"---|"
		}
		b.WriteString(head + "\n" + line + "\n")
		for _, f := range g.flags {
			cells := escapeCell(f.describe(defaults))
			if f.exceeded != "" {
				cells += " | " + f.exceeded
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.name, valueCell(&f), cells)
		}
	}
	return b.String() + "\n"
}

// SettingTable returns the Markdown table of the settings of backend/python or backend/native.
func SettingTable(backend string) string {
	rows := python.Settings()
	if backend == "backend/native" {
		rows = native.Settings()
	}
	var b strings.Builder
	b.WriteString("\n| key | value | meaning |\n|---|---|---|\n")
	for _, r := range rows {
		f := flag{value: "<string>", help: r.Help, least: r.Least, most: r.Most}
		cell, own := valueCell(&f), " *"
		if r.Choices != nil {
			cell = "`" + strings.Join(r.Choices, "`, `") + "`"
		}
		if r.Theirs {
			own = ""
		}
		if r.Default != "" {
			f.help += " Default: " + r.Default + "."
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s |\n", r.Key, own, cell, escapeCell(f.help))
	}
	return b.String() + "\n"
}

func valueCell(f *flag) string {
	switch {
	case f.value == "":
		return ""
	case f.most == 0:
		return "`" + strings.TrimSuffix(strings.TrimPrefix(f.value, "<"), ">") + "`"
	}
	return f.accepts()
}

func escapeCell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;", "*", "\\*").Replace(text)
}

// FlagsSchema returns the JSON schema of the chart's server.flags: the flags that have one value
// and an effect, and that the chart does not set itself.
func FlagsSchema(t *testing.T) string {
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
				if f.most <= math.MaxInt32 {
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
