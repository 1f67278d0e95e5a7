package internal

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stilted are phrases that read like a translation, with a plain form of each. They are looked for in
// Markdown and in comments of Go and Python.
var stilted = []struct {
	phrase *regexp.Regexp
	plain  string
}{
	{regexp.MustCompile(`(?i)\b(whoever|whichever of)\b`), "name the subject: the caller, the client, the model"},
	{regexp.MustCompile(`(?i)\bof (those|what|several) (that|who|which|is|are|has|have|come)\b`), "put the subject first"},
	{regexp.MustCompile(`(?i)\b(one|those) (that|who|which) (is|are|has|have|was|were|comes?|knows?|waits?|asks?)\b`), "use a noun"},
	{regexp.MustCompile(`(?i)\b(there (is|are)|is|are|was|were) none\b`), "say what exists, or use \"no X\""},
	{regexp.MustCompile(`(?i)\bwhat (it|they|he|she|there|the \w+|a \w+|each|all|others?|is|are|was|were|has|have|had|can|cannot|may|must|comes?|goes|lies|stands)\b`), "use a noun"},
	{regexp.MustCompile(`(?i)\b(not )?to be had\b`), "available, unavailable"},
	{regexp.MustCompile(`(?i)\bat a desk\b|\bfor a desk\b|\bfor the desk\b`), "for local development"},
	{regexp.MustCompile(`(?i)\bin the place of\b`), "instead of"},
	{regexp.MustCompile(`(?i)\bso (many|much)\b`), "that many, or the number"},
	{regexp.MustCompile(`(?i)\b(besides that|for want of|anew|as it were|is no \w+ of)\b`), "again, because of a lack of, is not"},
	{regexp.MustCompile(`(?i)\b(queues?|drops?|cuts?|refuses?|rejects?|keeps?) what is too (much|many|long|large)\b`), "excess requests, long lines"},
	{regexp.MustCompile(`(?i)\b(starts?|has|have|takes?|makes?) so many \w+\b`), "starts `count` processes"},
	{regexp.MustCompile(`(?i)\bmakes? no beginning of\b`), "so that X stays unambiguous"},
	{regexp.MustCompile(`(?i)\bof (several|many|two|those) who\b`), "one goroutine does X; the others do Y"},
	{regexp.MustCompile(`(?i)\bby those whom\b|\bthose whom (it|they)\b|\bwhom it is for\b`), "newcomers, operators, users"},
	{regexp.MustCompile(`(?i)\bare good for\b|\bis good for\b`), "validates, is used for"},
	{regexp.MustCompile(`(?i)\bcannot be meant\b|\bcannot mean\b`), "is almost certainly a mistake"},
	{regexp.MustCompile(`(?i)\b(that|which) there are not\b`), "unknown"},
	{regexp.MustCompile(`(?i)\bharms? nobody\b`), "state the bound"},
	{regexp.MustCompile(`(?i)\bhas ended is none\b`), "returns nil if the process is already gone"},
	{regexp.MustCompile(`\b(States|Locks|Callers|Lock|State): (none|there (is|are) none?)\b`), "leave the ritual section out"},
}

// proseFile has the number of such phrases in each folder that still has some.
const proseFile = "testdata/prose.txt"

var updateProse = flag.Bool("update-prose", false, "write the counts of stilted phrases as they are")

// pythonComment and goComment find the prose of a line of code.
var (
	goComment     = regexp.MustCompile(`(?:^|\s)//\s?(.*)$`)
	pythonComment = regexp.MustCompile(`(?:^|\s)#\s(.*)$|"""(.*)`)
)

// TestProseIsPlain fails for a stilted phrase that is new in a folder. The counts may only fall: they are
// lowered with go test ./internal -run TestProseIsPlain -update-prose.
func TestProseIsPlain(t *testing.T) {
	counts, places := map[string]int{}, map[string][]string{}
	walk(t, func(name string, content []byte) {
		prose := proseOf(name)
		if prose == nil {
			return
		}
		for n, line := range slices.Collect(strings.Lines(string(content))) {
			text := prose(strings.TrimRight(line, "\n"))
			for _, s := range stilted {
				if found := s.phrase.FindString(text); found != "" {
					folder := path.Dir(name)
					counts[folder]++
					places[folder] = append(places[folder], fmt.Sprintf("%s:%d: %q: %s", name, n+1, found, s.plain))
				}
			}
		}
	})
	if *updateProse {
		var b bytes.Buffer
		for _, folder := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "%s %d\n", folder, counts[folder])
		}
		if err := os.WriteFile(proseFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	known := map[string]int{}
	content, err := os.ReadFile(proseFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		folder, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if known[folder], err = strconv.Atoi(n); err != nil {
			t.Fatalf("%s: %q: %v", proseFile, line, err)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[folder]; n > known[folder] {
			t.Errorf("%s has %d stilted phrases, %d are known. Write the new ones plainly:\n\t%s", folder, n, known[folder], strings.Join(places[folder], "\n\t"))
		}
	}
}

// proseOf returns the function that finds the prose of a line of a file, or nil if the file has none.
func proseOf(name string) func(line string) string {
	comment := func(pattern *regexp.Regexp) func(string) string {
		return func(line string) string { return strings.Join(pattern.FindStringSubmatch(line), " ") }
	}
	switch {
	case strings.Contains(name, "testdata/") || strings.HasSuffix(name, ".pb.go") || name == "internal/prose_test.go":
		return nil
	case path.Ext(name) == ".md":
		return func(line string) string { return line }
	case path.Ext(name) == ".go":
		return comment(goComment)
	case path.Ext(name) == ".py":
		return comment(pythonComment)
	}
	return nil
}
