package top

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
)

// TestPageNamesColumnsFlagsAndKeys checks that docs/top.md names the columns, flags and keys of the
// command. It is internal because only a terminal has keys.
func TestPageNamesColumnsFlagsAndKeys(t *testing.T) {
	text, err := os.ReadFile("../../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	var titles []string
	for _, c := range columns() {
		titles = append(titles, c.title)
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(c.title) + `\b`).MatchString(page) {
			t.Errorf("docs/top.md does not name the column %s", c.title)
		}
	}
	_, table, found := strings.Cut(page, "| column | meaning |")
	if !found {
		t.Error("docs/top.md has no table of columns")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for name := range strings.SplitSeq(names, ", ") {
			if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, "|") && !slices.Contains(titles, name) {
				t.Errorf("docs/top.md has the column %q, which is not there", name)
			}
		}
	}
	flags := command.Flags("top")
	if _, err := parse(flags, nil); err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^nereid top .*$`).FindAllString(page, -1) {
		line, _, _ = strings.Cut(line, "#")
		for _, name := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(line, -1) {
			if flags.Lookup(name[1]) == nil {
				t.Errorf("docs/top.md has the flag --%s, which is not there", name[1])
			}
		}
	}
	for _, key := range []string{"j", "k", "s", "S", "/", "w", "i", "e", "l", "d", "r", "u", "n", "?", "q"} {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("docs/top.md does not name the key %s", key)
		}
	}
	_, keys, found := strings.Cut(page, "| key | action |")
	if !found {
		t.Error("docs/top.md has no table of keys")
	}
	keys, _, _ = strings.Cut(keys, "\n\n")
	for _, key := range regexp.MustCompile("`(.)`").FindAllStringSubmatch(keys, -1) {
		v, u := many(3), &ui{pane: paneDetails + 1} // no key selects it
		before := *u
		more, _ := u.press(key[1], v, 24)
		if more && u.ask == nil && *u == before {
			t.Errorf("docs/top.md has the key %s, which does nothing", key[1])
		}
	}
}
