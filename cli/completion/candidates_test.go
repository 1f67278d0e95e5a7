package completion_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/completion"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestCandidatesAreLines checks that a candidate and its description are separated by a tab, as the
// completion scripts expect.
func TestCandidatesAreLines(t *testing.T) {
	var out, errs strings.Builder
	status := completion.Run([]string{"candidates", "--", "--mode"}, func() command.Description { return completion.Program }, &out, &errs)
	if want := "none\n--mode\tWhich: \"fast\" or \"slow\".\n"; status != 0 || out.String() != want || errs.Len() > 0 {
		t.Errorf("got status %d, %q and %q, want %q", status, out.String(), errs.String(), want)
	}
}
