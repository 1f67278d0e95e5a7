package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// TestOperationsNamesEverySetting does the same for the Python backend's keys.
func TestOperationsNamesEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := python.Settings()
	if len(keys) == 0 {
		t.Fatal("the Python backend has no settings")
	}
	for _, key := range keys {
		if !strings.Contains(section(t, string(text), "## The Python backend"), "`"+key+"`") {
			t.Errorf("docs/operations.md does not name the key %s", key)
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
