package internal

import (
	"bytes"
	"io/fs"
	"iter"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// textFiles have texts for users, operators or developers in any line.
var textFiles = []string{".html", ".json", ".service", ".default", ".tpl", ".txt", ".yaml", ".yml"}

// TestProseOutsideGoIsPlain fails for a stilted phrase in Markdown, in docstrings and comments of
// Python, and in any line of configuration, templates, scripts and makefiles.
func TestProseOutsideGoIsPlain(t *testing.T) {
	files := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		hidden := strings.HasPrefix(base, ".") && name != "." && name != ".ci"
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || slices.Contains([]string{"testdata", "bin", "dist"}, base)):
			return fs.SkipDir
		case entry.IsDir() || !entry.Type().IsRegular():
			return nil
		}
		texts := textsOf(name)
		if texts == nil {
			return nil
		}
		content, err := os.ReadFile(path.Join("..", name))
		if err != nil {
			return err
		}
		files++
		for n, text := range texts(content) {
			for found, plain := range stiltedPhrases(text) {
				t.Errorf("%s:%d: %q: %s", name, n, found, plain)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Errorf("%d files were read, want at least 300", files)
	}
}

// TestTextsOfFiles checks the texts that TestProseOutsideGoIsPlain finds.
func TestTextsOfFiles(t *testing.T) {
	python := `"""One two
three.

	a: table
"""
#: Four
#: five.
x = 1  # six
y = """
seven
"""
# eight
def f():
	"""Nine."""
`
	want := []string{"One two three.", "a: table", "Four five.", "six", "eight", "Nine."}
	if got := collect(pythonTexts, python); !slices.Equal(got, want) {
		t.Errorf("Python: got %q, want %q", got, want)
	}
	markdown := "# One\n\n* two\n  three\n"
	want = []string{"# One", "* two three"}
	if got := collect(markdownTexts, markdown); !slices.Equal(got, want) {
		t.Errorf("Markdown: got %q, want %q", got, want)
	}
	yaml := "# One\n# two.\n\na: three # four\n"
	want = []string{"One two.", "a: three # four"}
	if got := collect(lineTexts, yaml); !slices.Equal(got, want) {
		t.Errorf("YAML: got %q, want %q", got, want)
	}
}

func collect(texts func([]byte) iter.Seq2[int, string], content string) []string {
	var got []string
	for _, text := range texts([]byte(content)) {
		got = append(got, text)
	}
	return got
}

// textsOf returns the function that finds the texts of a file, or nil if it has none.
func textsOf(name string) func(content []byte) iter.Seq2[int, string] {
	switch base := path.Base(name); {
	case path.Ext(name) == ".md":
		return markdownTexts
	case path.Ext(name) == ".py", path.Ext(name) == ".pyi":
		return pythonTexts
	case slices.Contains(textFiles, path.Ext(name)), slices.Contains([]string{"Makefile", "Dockerfile"}, base), path.Dir(name) == ".ci":
		return lineTexts
	}
	return nil
}

// markdownTexts yields the paragraphs of Markdown.
func markdownTexts(content []byte) iter.Seq2[int, string] {
	return joined(content, func(line string) (text string, joins bool) { return strings.TrimSpace(line), true })
}

var (
	pythonWhole    = regexp.MustCompile(`^\s*#:?\s(.*)$`)
	pythonTrailing = regexp.MustCompile(`\s\s#\s(.*)$`)
	pythonDoc      = regexp.MustCompile(`^\s*r?"""`)
)

// pythonTexts yields the paragraphs of docstrings and comments. A string is a docstring if its line
// begins with it.
func pythonTexts(content []byte) iter.Seq2[int, string] {
	inDoc, inString := false, false
	return joined(content, func(line string) (text string, joins bool) {
		quotes := strings.Count(line, `"""`)
		switch {
		case inString:
			inString = quotes%2 == 0
			return "", false
		case inDoc || pythonDoc.MatchString(line):
			if quotes%2 == 1 {
				inDoc = !inDoc
			}
			return strings.TrimSpace(strings.ReplaceAll(strings.TrimSpace(line), `"""`, "")), true
		case quotes%2 == 1:
			inString = true
			return "", false
		}
		if m := pythonWhole.FindStringSubmatch(line); m != nil {
			return m[1], true
		}
		if m := pythonTrailing.FindStringSubmatch(line); m != nil {
			return m[1], false
		}
		return "", false
	})
}

// lineTexts yields the paragraphs of comments, and all other lines.
func lineTexts(content []byte) iter.Seq2[int, string] {
	return joined(content, func(line string) (text string, joins bool) {
		if m := pythonWhole.FindStringSubmatch(line); m != nil {
			return m[1], true
		}
		return strings.TrimSpace(line), false
	})
}

// joined yields the texts of lines with the numbers of their first lines. Adjacent texts that
// join are one paragraph.
func joined(content []byte, textOf func(line string) (text string, joins bool)) iter.Seq2[int, string] {
	return func(yield func(n int, text string) bool) {
		paragraph, first, n := "", 0, 0
		for line := range bytes.Lines(content) {
			n++
			text, joins := textOf(strings.TrimRight(string(line), "\n"))
			if joins && text != "" && paragraph != "" {
				paragraph += " " + text
				continue
			}
			if paragraph != "" && !yield(first, paragraph) {
				return
			}
			if paragraph, first = "", n; joins {
				paragraph = text
			} else if text != "" && !yield(n, text) {
				return
			}
		}
		if paragraph != "" {
			yield(first, paragraph)
		}
	}
}
