package manual_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/manual"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestPage(t *testing.T) {
	got := manual.Page(command.Description{
		Name: "prog", Call: "prog [options]", Summary: ".hidden\nsecond \\ line",
		Flags:    []command.Flag{{Group: "One", Name: "a-b", Value: "<x>", Help: "'quoted' first."}, {Group: "Two", Name: "c"}},
		Commands: []command.Description{{Name: "run", Call: "prog run FILE", Summary: "Runs.", Flags: []command.Flag{{Name: "out", Value: "FILE", Help: "A file."}}}},
	}, "1.0-x")
	for _, want := range []string{
		`.TH PROG 1 "" "prog 1.0\-x" "User Commands"` + "\n",
		".SH SYNOPSIS\n.nf\nprog [options]\nprog run FILE\n.fi\n",
		".SH DESCRIPTION\n\\&.hidden\nsecond \\e line\n",
		".SS prog run\nRuns.\n.TP\n.B \\-\\-out \\fIFILE\\fR\nA file.\n",
		".SS One\n.TP\n.B \\-\\-a\\-b \\fI<x>\\fR\n\\&'quoted' first.\n.SS Two\n.TP\n.B \\-\\-c\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not contain %q:\n%s", want, got)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--x"}, {"--help", "x"}} {
		var out, errs strings.Builder
		status := manual.Run(args, "1", nil, &out, &errs)
		if args[0] == "--help" {
			if status != 0 || !strings.HasPrefix(out.String(), "Usage: nereid man\n") {
				t.Errorf("%q: got status %d and %q, want the usage", args, status, out.String())
			}
		} else if status != command.StatusUsage || out.Len() > 0 || !strings.HasPrefix(errs.String(), "nereid man: ") {
			t.Errorf("%q: got status %d, %q and %q, want 2 and a complaint", args, status, out.String(), errs.String())
		}
	}
}
