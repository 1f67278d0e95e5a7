package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/flags"
)

// TestEveryCommandIsDescribed checks that each command writes its usage with package command.
// Otherwise completion and the manual page would not include it.
func TestEveryCommandIsDescribed(t *testing.T) {
	root := describe()
	var check func(path string, c command.Description)
	check = func(path string, c command.Description) {
		path += " " + c.Name
		if !strings.HasPrefix(c.Call+" ", path[1:]+" ") || c.Summary == "" {
			t.Errorf("%s: got call %q and summary %q, want it to write its usage by command.Usage or command.GroupUsage", path[1:], c.Call, c.Summary)
		}
		for _, f := range c.Flags {
			if f.Help == "" {
				t.Errorf("%s --%s has no help", path[1:], f.Name)
			}
		}
		for _, sub := range c.Commands {
			check(path, sub)
		}
	}
	check("", root)
	if len(root.Commands) != len(commands(noEnvironment)) || len(root.Flags) < 100 {
		t.Errorf("got %d commands and %d flags, want all", len(root.Commands), len(root.Flags))
	}
}

// TestCompletionKnowsValuesAndModels checks completion of flags with fixed values and of model
// names.
func TestCompletionKnowsValuesAndModels(t *testing.T) {
	models := filepath.Join(t.TempDir(), "models")
	if err := os.MkdirAll(filepath.Join(models, "greeter", "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"bench m --protocol ":                             "http grpc stream",
		"bench m --shared-memory=":                        "--shared-memory=none --shared-memory=system",
		"replay d --protocol ":                            "http grpc",
		"top --sort p":                                    "p50 p90 p99",
		"bench --input-record " + models + " gr":          "greeter",
		"replay " + models + " --model ":                  "greeter",
		"serve " + models + " --load-model ":              "greeter",
		"--model-repository " + models + " --load-model=": "--load-model=greeter",
	} {
		status, out, stderr := RunAs("nereid", append([]string{"completion", "candidates", "--"}, strings.Split(line, " ")...)...)
		var words []string
		for _, one := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
			word, _, _ := strings.Cut(one, "\t")
			words = append(words, word)
		}
		if got := strings.Join(words, " "); status != 0 || got != want {
			t.Errorf("%q: got status %d, %q and %q, want %q", line, status, got, stderr, want)
		}
	}
}

func TestManualNamesEveryFlagAndCommand(t *testing.T) {
	status, page, stderr := RunAs("nereid", "man")
	if status != 0 || stderr != "" {
		t.Fatalf("got status %d and %q", status, stderr)
	}
	for _, f := range flags.Describe() {
		if want := "\n.B " + strings.ReplaceAll("--"+f.Name, "-", `\-`); !strings.Contains(page, want+"\n") && !strings.Contains(page, want+" ") {
			t.Errorf("the page does not contain --%s", f.Name)
		}
	}
	for _, c := range commands(noEnvironment) {
		if !strings.Contains(page, "\n.SS nereid "+c.name+"\n") {
			t.Errorf("the page does not contain the command %s", c.name)
		}
	}
}
