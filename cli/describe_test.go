package cli

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
)

// TestEveryCommandIsDescribed: a command whose usage is not written by package command would have neither
// completion nor a place in the manual page.
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

func TestManualNamesEveryFlagAndCommand(t *testing.T) {
	status, page, stderr := runAs("nereid", "man")
	if status != 0 || stderr != "" {
		t.Fatalf("got status %d and %q", status, stderr)
	}
	for _, g := range flagTable() {
		for _, f := range g.flags {
			if want := "\n.B " + strings.ReplaceAll("--"+f.name, "-", `\-`); !strings.Contains(page, want+"\n") && !strings.Contains(page, want+" ") {
				t.Errorf("the page does not contain --%s", f.name)
			}
		}
	}
	for _, c := range commands(noEnvironment) {
		if !strings.Contains(page, "\n.SS nereid "+c.name+"\n") {
			t.Errorf("the page does not contain the command %s", c.name)
		}
	}
}
