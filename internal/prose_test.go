package internal

import (
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"iter"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// stilted are phrases that read like a translation, with advice on a plain form. The test looks for
// them in Markdown, in comments of Go and Python, and in strings of Go. A text can only contain a
// phrase if it contains one of its literals in lower case. A check for these first is much faster
// than the regular expression.
var stilted = []struct {
	phrase   *regexp.Regexp
	literals []string
	plain    string
}{
	{regexp.MustCompile(`(?i)\b(whoever|whichever of)\b`), words("whoever|whichever of"), "name the subject: the caller, the client, the model"},
	{regexp.MustCompile(`(?i)\bof (those|what|several) (that|who|which|is|are|has|have|come)\b`), words("of those |of what |of several "), "put the subject first"},
	{regexp.MustCompile(`(?i)\b(one|those) (that|who|which) (is|are|has|have|was|were|comes?|knows?|waits?|asks?)\b`), words("one that |one who |one which |those that |those who |those which "), "use a noun"},
	{regexp.MustCompile(`(?i)\b(there (is|are)|is|are|was|were) (?-i:none)\b`), words("s none|are none|were none"), "say what exists, or use \"no X\""},
	{regexp.MustCompile(`(?i)\bwhat (it|they|he|she|there|the \w+|a \w+|each|all|others?|is|are|was|were|has|have|had|can|cannot|may|must|comes?|goes|lies|stands)\b`), words("what "), "use a noun"},
	{regexp.MustCompile(`(?i)\b(not )?to be had\b`), words("to be had"), "available, unavailable"},
	{regexp.MustCompile(`(?i)\bat a desk\b|\bfor a desk\b|\bfor the desk\b`), words(" desk"), "for local development"},
	{regexp.MustCompile(`(?i)\bin the place of\b`), words("in the place of"), "instead of"},
	{regexp.MustCompile(`(?i)\bso (many|much)\b`), words("so many|so much"), "that many, or the number"},
	{regexp.MustCompile(`(?i)\b(besides that|for want of|anew|as it were|is no \w+ of)\b`), words("besides that|for want of|anew|as it were|is no "), "again, because of a lack of, is not"},
	{regexp.MustCompile(`(?i)\b(queues?|drops?|cuts?|refuses?|rejects?|keeps?) what is too (much|many|long|large)\b`), words("what is too "), "excess requests, long lines"},
	{regexp.MustCompile(`(?i)\b(starts?|has|have|takes?|makes?) so many \w+\b`), words("so many "), "starts `count` processes"},
	{regexp.MustCompile(`(?i)\bmakes? no beginning of\b`), words("no beginning of"), "so that X stays unambiguous"},
	{regexp.MustCompile(`(?i)\bof (several|many|two|those) who\b`), words(" who"), "one goroutine does X; the others do Y"},
	{regexp.MustCompile(`(?i)\bby those whom\b|\bthose whom (it|they)\b|\bwhom it is for\b`), words("whom"), "newcomers, operators, users"},
	{regexp.MustCompile(`(?i)\bare good for\b|\bis good for\b`), words("good for"), "validates, is used for"},
	{regexp.MustCompile(`(?i)\bcannot be meant\b|\bcannot mean\b`), words("cannot be meant|cannot mean"), "is almost certainly a mistake"},
	{regexp.MustCompile(`(?i)\b(such a one|the books say|is none of|at most %d can be)\b`), words("such a one|books say|is none of|can be"), "use the usual term: unexpected, recorded, does not belong to, at most %d are allowed"},
	{regexp.MustCompile(`\b(is|are) no (UTF-8|JSON|map|list|name|file|length|host|number)\b`), words("is no |are no "), "is not"},
	{regexp.MustCompile(`(?i)\b(that|which) there are not\b`), words("there are not"), "unknown"},
	{regexp.MustCompile(`(?i)\bharms? nobody\b`), words("nobody"), "state the bound"},
	{regexp.MustCompile(`(?i)\bhas ended is none\b`), words("is none"), "returns nil if the process is already gone"},
	{regexp.MustCompile(`\b(States|Locks|Callers|Lock|State): (none|there (is|are) none?)\b`), words(": none|: there "), "leave the ritual section out"},
}

// words returns the literals of a phrase.
func words(list string) []string { return strings.Split(list, "|") }

// proseFile has the number of such phrases in each folder that still has some.
const proseFile = "testdata/prose.txt"

var updateProse = flag.Bool("update-prose", false, "write the counts of stilted phrases as they are")

// commentWidth is the maximum width of comments.
const commentWidth = 100

// TestProseIsPlain fails for a stilted phrase in Go that is new in a folder. The counts may only
// fall: they are lowered with go test ./internal -run TestProseIsPlain -update-prose.
func TestProseIsPlain(t *testing.T) {
	counts, places := map[string]int{}, map[string][]string{}
	walk(t, func(name string, content []byte) {
		if !hasProse(name) {
			return
		}
		for n, text := range linesOf(name, content) {
			for found, plain := range stiltedPhrases(text) {
				folder := path.Dir(name)
				counts[folder]++
				places[folder] = append(places[folder], fmt.Sprintf("%s:%d: %q: %s", name, n, found, plain))
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
	known := knownCounts(t)
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[folder]; n > known[folder] {
			t.Errorf("%s has %d stilted phrases, %d are known. Write the new ones plainly:\n\t%s", folder, n, known[folder], strings.Join(places[folder], "\n\t"))
		}
	}
}

// TestCommentsWrap finds comments of Go that are too wide. Preformatted lines may be wider.
func TestCommentsWrap(t *testing.T) {
	walk(t, func(name string, content []byte) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, ".pb.go") {
			return
		}
		n := 0
		for line := range strings.Lines(string(content)) {
			n++
			line = strings.TrimRight(line, "\n")
			text, isComment := strings.CutPrefix(strings.TrimLeft(line, "\t"), "// ")
			if width := utf8.RuneCountInString(line); isComment && width > commentWidth && strings.Contains(text, " ") {
				t.Errorf("%s:%d: the comment has %d columns, want at most %d", name, n, width, commentWidth)
			}
		}
	})
}

// linesOf yields the prose of a Go file with its line numbers.
func linesOf(name string, content []byte) iter.Seq2[int, string] {
	return func(yield func(n int, text string) bool) { goProse(name, content, yield) }
}

// goProse yields the paragraphs of the comments of a Go file and, outside tests, its strings with a
// space.
func goProse(name string, content []byte, yield func(n int, text string) bool) {
	file := token.NewFileSet().AddFile(name, -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	paragraph, first, last := "", 0, 0
	for more := true; more; {
		pos, kind, text := s.Scan()
		n := file.Line(pos)
		alone := len(bytes.TrimSpace(content[file.Offset(file.LineStart(n)):file.Offset(pos)])) == 0
		switch continues := n == last+1 && alone && kind == token.COMMENT && !strings.HasPrefix(text, "//\t"); {
		case continues && text != "//":
			if paragraph == "" {
				first = n
			}
			paragraph, last = paragraph+strings.TrimPrefix(text, "//"), n
		case kind == token.COMMENT, kind == token.EOF:
			more = (paragraph == "" || yield(first, paragraph)) && kind != token.EOF
			if paragraph, first, last = strings.TrimPrefix(text, "//"), n, n; !alone {
				last = 0
			}
		case kind == token.STRING && strings.Contains(text, " ") && !strings.HasSuffix(name, "_test.go"):
			more = yield(n, strings.Join(strings.Fields(text), " "))
		}
	}
}

// TestGoProse checks which texts of a Go file are prose, and at which line each begins.
func TestGoProse(t *testing.T) {
	const code = "package x\n\n// A b\n// c.\n//\n// D.\nvar s = \"e f\" // g\n// h\nvar w = `word`\n"
	for name, want := range map[string]map[int]string{
		"x.go":      {3: " A b c.", 6: " D.", 7: `"e f" g`, 8: " h"},
		"x_test.go": {3: " A b c.", 6: " D.", 7: " g", 8: " h"},
	} {
		got := map[int]string{}
		for n, text := range linesOf(name, []byte(code)) {
			got[n] += text
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// knownCounts reads proseFile.
func knownCounts(t *testing.T) map[string]int {
	t.Helper()
	content, err := os.ReadFile(proseFile)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]int{}
	for line := range strings.Lines(string(content)) {
		folder, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if known[folder], err = strconv.Atoi(n); err != nil {
			t.Fatalf("%s: %q: %v", proseFile, line, err)
		}
	}
	return known
}

// stiltedPhrases yields the stilted phrases of a text, each with advice on its plain form.
func stiltedPhrases(text string) iter.Seq2[string, string] {
	return func(yield func(found, plain string) bool) {
		lower := strings.ToLower(text)
		has := func(literal string) bool { return strings.Contains(lower, literal) }
		for _, s := range stilted {
			if !slices.ContainsFunc(s.literals, has) {
				continue
			}
			if found := s.phrase.FindString(text); found != "" && !yield(found, s.plain) {
				return
			}
		}
	}
}

// hasProse reports whether a file is Go code with prose of our own.
func hasProse(name string) bool {
	return path.Ext(name) == ".go" && !strings.HasSuffix(name, ".pb.go") && name != "internal/prose_test.go"
}
