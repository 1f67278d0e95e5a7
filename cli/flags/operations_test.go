package flags

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/python"
)

// TestOperationsNamesEveryFlag keeps docs/operations.md true: each flag stands
// in one of its two sections, and in the right one.
func TestOperationsNamesEveryFlag(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	acting := flagsIn(t, string(text), "## Flags that act")
	idle := flagsIn(t, string(text), "## Flags that are accepted without effect")
	for _, g := range flagTable() {
		for _, f := range g.flags {
			if f.name == "help" {
				continue
			}
			wantIdle := slices.Contains(noEffect, f.name)
			if got := slices.Contains(idle, f.name); got != wantIdle {
				t.Errorf("--%s among the flags without effect: got %v, want %v", f.name, got, wantIdle)
			}
			if got := slices.Contains(acting, f.name); got == wantIdle {
				t.Errorf("--%s among the flags that act: got %v, want %v", f.name, got, !wantIdle)
			}
		}
	}
	for _, name := range slices.Concat(acting, idle) {
		if !slices.ContainsFunc(flagTable(), func(g group) bool {
			return slices.ContainsFunc(g.flags, func(f flag) bool { return f.name == name })
		}) {
			t.Errorf("docs/operations.md names --%s, which is no flag", name)
		}
	}
}

// TestOperationsNamesEveryLimit keeps the table of limits true: it has each flag of
// a limit with its default, in the line's own words or as a number.
func TestOperationsNamesEveryLimit(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	limits := section(t, string(text), "## Limits")
	byDefault := regexp.MustCompile(`Default: (\d+)\.$`)
	for _, f := range slices.Concat(limitFlags(), modelLimitFlags()) {
		match := byDefault.FindStringSubmatch(f.help)
		if match == nil {
			t.Errorf("--%s: its help does not end with a default: %q", f.name, f.help)
			continue
		}
		// "`--flag`, 8 KiB", or further flags of the same limit before it.
		found := regexp.MustCompile("`--" + f.name + "`(?:, `--[a-z-]+`)*, (\\d+(?: [KMG]iB| min| s|))(?: - 1|/s|)").FindStringSubmatch(limits)
		if found == nil {
			t.Errorf("docs/operations.md: the table of limits does not have --%s with its default", f.name)
			continue
		}
		if got := numberOf(t, found[1]); got != match[1] && got != "2147483648" {
			t.Errorf("docs/operations.md: --%s is %s by default, want %s", f.name, got, match[1])
		}
	}
}

// numberOf reads "8 KiB" or "10 min".
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

// flagsIn returns the flags in the tables of a section.
func flagsIn(t *testing.T, text, heading string) []string {
	t.Helper()
	var names []string
	for _, match := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(section(t, text, heading), -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Fatalf("docs/operations.md: no flag below %q", heading)
	}
	return names
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
