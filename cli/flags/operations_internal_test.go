package flags

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestOperationsNamesEveryLimit checks that the table of limits in docs/operations.md has each
// limit flag with its default.
func TestOperationsNamesEveryLimit(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	limits := Section(t, string(text), "## Limits")
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
